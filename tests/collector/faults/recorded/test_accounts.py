"""What faults of accounts and passwords show in telemetry, as they do on a cluster."""

from __future__ import annotations

import pytest

from tests.collector.faults.conftest import Recorded
from tests.collector.faults.recorded_episodes import CONSUMERS, RecordedEpisode, assert_untouched, said_by_consumers

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


def test_what_read_only_account_shows(recorded: Recorded) -> None:
    for e in recorded("read-only-account"):
        assert_untouched(e)
        assert any(sign in said_by_consumers(e) for sign in ("NOPERM", "not authorized", "permission denied"))


def test_what_consumer_stopped_shows(recorded: Recorded) -> None:
    for e in recorded("consumer-stopped"):
        assert_untouched(e)
        assert any("not authorized to access this topic" in e.messages(service) for service in CONSUMERS)
