"""What faults of builds show in telemetry, as they do on a cluster."""

from __future__ import annotations

import pytest

from tests.collector.faults.conftest import Recorded

pytestmark = pytest.mark.slow


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


def test_what_connection_pool_exhausted_shows(recorded: Recorded) -> None:
    for e in recorded("connection-pool-exhausted"):
        assert e.most_restarts(e.target) == 0
        calls = e.spans[(e.spans["service"] == e.target) & (e.spans["kind"] == "client")]
        before, after = e.before(calls), e.after(calls, 10)
        assert after["duration_ns"].quantile(0.9) > 2 * before["duration_ns"].quantile(0.9)


def test_what_one_bad_replica_shows(recorded: Recorded) -> None:
    for e in recorded("one-bad-replica"):
        images = {c["image"].rpartition(":")[2] for c in e.containers(e.target)}
        assert e.parameters["image"].rpartition(":")[2] in images
        assert len(images) > 1, "good pods run beside the bad one"
        assert e.most_restarts(e.target) == 1, "the image of one pod was changed in place"
        _, after = e.calls_of("server")
        slow = after["duration_ns"] > 8e7
        if e.spans_tell_outcome:
            assert 0 < (e.is_error(after) | slow).mean() < 0.8
        else:
            assert 0 < max(e.error_share_at_client(), slow.mean()) < 0.8


def test_what_memory_leak_shows(recorded: Recorded) -> None:
    for e in recorded("memory-leak"):
        assert 137 in e.exit_codes(e.target)
        assert "OOMKilled" in {c.get("reason") for c in e.containers(e.target)}
        before, after = e.series(e.target, "container_memory_working_set_bytes")
        assert after.max() > 1.5 * before.max()
