"""What faults of applications show in telemetry, as they do on a cluster."""

from __future__ import annotations

import pytest

from tests.collector.faults.conftest import Recorded
from tests.collector.faults.recorded_episodes import RecordedEpisode

pytestmark = pytest.mark.slow


def assert_crash_loop(e: RecordedEpisode, service: str, exit_code: int, line: str) -> None:
    assert line in e.messages(service)
    assert exit_code in e.exit_codes(service)
    assert e.most_restarts(service) >= 2
    assert "BackOff" in e.reasons(service)
    assert any(c.get("reason") == "CrashLoopBackOff" for c in e.containers(service))


def assert_program_cannot_start(e: RecordedEpisode, service: str, exit_code: int, line: str) -> None:
    """It ends each time, or keeps trying where the original's programs do."""
    if not e.retries_logins:
        assert_crash_loop(e, service, exit_code, line)
        return
    assert e.messages(service).count(line) >= 5
    assert e.most_restarts(service) == 0
    assert "Started" in e.reasons(service)


def login_refusal(e: RecordedEpisode, database: str) -> tuple[int, str]:
    """How a program ends whose password a database refuses, and what it says."""
    is_postgresql = "postgresql" in e.app.services[database].program
    return (1, "password authentication failed") if is_postgresql else (2, "Authentication failed")


def test_what_revoke_auth_shows(recorded: Recorded) -> None:
    for e in recorded("revoke-auth"):
        if "postgresql" in e.app.services[e.target].program:
            assert "permission denied for table" in e.messages(e.consumers[0])
        else:
            assert_program_cannot_start(e, e.consumers[0], 1, "not authorized on")
            assert "NOPERM" in e.messages(e.consumers[0])
        assert e.most_restarts(e.target) == 0


def test_what_user_unregistered_shows(recorded: Recorded) -> None:
    for e in recorded("user-unregistered"):
        assert_program_cannot_start(e, e.consumers[0], *login_refusal(e, e.target))


def test_what_auth_missing_shows(recorded: Recorded) -> None:
    for e in recorded("auth-missing"):
        assert_program_cannot_start(e, e.consumers[0], *login_refusal(e, e.target))


def test_what_wrong_secret_shows(recorded: Recorded) -> None:
    for e in recorded("wrong-secret"):
        (database,) = [name for name in e.app.stores(e.target) if e.app.services[name].kind == "database"]
        assert_program_cannot_start(e, e.target, *login_refusal(e, database))
        assert "ScalingReplicaSet" in e.reasons(e.target)
        assert e.errors_at_client() > 0 or not e.app.services[e.target].port


def test_what_buggy_image_shows(recorded: Recorded) -> None:
    for e in recorded("buggy-image"):
        assert "no reachable servers" in e.messages(e.target)
        assert e.retries_logins or 2 in e.exit_codes(e.target)
        assert any(c["image"].endswith(e.parameters["image"]) for c in e.containers(e.target))
        assert "ScalingReplicaSet" in e.reasons(e.target)


def test_what_wrong_binary_shows(recorded: Recorded) -> None:
    for e in recorded("wrong-binary"):
        running = [pod for pod in e.states("Pod", e.target) if pod["phase"] == "Running"]
        assert running
        assert e.most_restarts(e.target) == 0
        spans = e.after(e.spans, 7)
        reported = set(spans[spans["service"] == e.target]["reported_service"].astype(str))
        assert e.target not in reported
        program = e.parameters["program"]
        assert any(f"{said}{program}" in e.messages(e.target) for said in ("srv-", "Starting the "))
        assert e.errors_at_client() > 0


def test_what_slow_build_shows(recorded: Recorded) -> None:
    for e in recorded("slow-build"):
        assert e.most_restarts(e.target) == 0
        before, after = e.calls_of("server")
        assert after["duration_ns"].quantile(0.9) > max(8e7, 3 * before["duration_ns"].quantile(0.9))


def test_what_failing_build_shows(recorded: Recorded) -> None:
    for e in recorded("failing-build"):
        assert e.most_restarts(e.target) == 0
        if e.spans_tell_outcome:
            assert 0 < e.is_error(e.calls_of("server")[1]).mean() < 0.8
        assert 0 < e.error_share_at_client() < 0.8


def test_what_wrong_environment_shows(recorded: Recorded) -> None:
    for e in recorded("wrong-environment"):
        assert e.most_restarts(e.target) >= 1
        assert "cannot assign requested address" in e.messages(e.target)
        assert e.calls_of("server")[1].empty
        assert e.errors_at_client() > 0


def test_what_wrong_host_shows(recorded: Recorded) -> None:
    for e in recorded("wrong-host"):
        assert e.most_restarts(e.target) == 0
        (host,) = e.parameters["variables"].values()
        calls = e.after(e.spans[(e.spans["service"] == e.target) & (e.spans["kind"] == "client")], 7)
        if e.spans_tell_outcome:
            assert calls["attributes"].str.contains(host).any(), "its calls say which name was not found"
        else:
            assert f"Failed to connect to {e.parameters['callee']}" in e.messages(e.target)
        assert e.errors_at_client() > 0


def test_what_connection_pool_exhausted_shows(recorded: Recorded) -> None:
    for e in recorded("connection-pool-exhausted"):
        assert e.most_restarts(e.target) == 0
        calls = e.spans[(e.spans["service"] == e.target) & (e.spans["kind"] == "client")]
        before, after = e.before(calls), e.after(calls, 10)
        assert after["duration_ns"].quantile(0.9) > 2 * before["duration_ns"].quantile(0.9)


def test_what_retry_storm_shows(recorded: Recorded) -> None:
    for e in recorded("retry-storm"):
        assert e.most_restarts(e.target) == 0
        calls = e.spans[(e.spans["service"] == e.target) & (e.spans["kind"] == "client")]
        callees = e.app.services[e.target].calls
        if not calls["peer_service"].isin(callees).any():
            # its calls have no spans of their own, what they ask for has
            requests = e.spans.loc[(e.spans["service"] == e.target) & (e.spans["kind"] == "server"), "trace_id"]
            served = e.spans[e.spans["service"].isin(callees) & (e.spans["kind"] == "server")]
            calls = served[served["trace_id"].isin(requests)]
        before, after = e.before(calls), e.after(calls, 7)
        per_request = [len(part) / max(1, part["trace_id"].nunique()) for part in (before, after)]
        # a timeout above what calls usually take is met by few of them
        factor = 1.1 if e.parameters["share_of_usual"] < 1 else 1.02
        assert per_request[1] > factor * per_request[0], "a request makes more calls than before"


def test_what_short_timeout_shows(recorded: Recorded) -> None:
    for e in recorded("short-timeout"):
        assert e.most_restarts(e.target) == 0
        calls = e.spans[(e.spans["service"] == e.target) & (e.spans["kind"] == "client")]
        before, after = e.before(calls), e.after(calls, 7)
        limit_ns = 1e6 * float(e.parameters["variables"]["RPC_TIMEOUT_MS"])
        if e.spans_tell_outcome:
            assert e.is_error(after).mean() > e.is_error(before).mean() + 0.02
            given_up = after[e.is_error(after)]
            assert given_up["duration_ns"].median() < 3 * limit_ns + 2e7, "the caller does not wait longer"
        assert e.errors_at_client() > 0
