"""Faults of accounts keep passwords in Secrets, and their checks compare pods by uid."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from faultset.collector.apps import load_app
from faultset.collector.faults.registry import get_fault
from faultset.collector.faults.stores import find_service_failure, observe_service
from faultset.collector.platforms.fake import FakePlatform
from faultset.collector.platforms.journal import Journal
from faultset.collector.spec.credentials import SecretKey, decoded
from faultset.core.errors import PlatformError

ACCOUNTS = "hotel-store-accounts"


@pytest.fixture
def platform(tmp_path: Path) -> FakePlatform:
    made = FakePlatform(load_app("hotel"), Journal(tmp_path / "journal.jsonl"))
    made.deploy()
    return made


def test_no_password_stands_in_the_journal_and_the_undo_brings_back_the_right_one(platform: FakePlatform) -> None:
    before = platform.get("Secret", ACCOUNTS)["data"]
    get_fault("wrong-secret").inject(platform, "geo", np.random.default_rng(1))
    after = platform.get("Secret", ACCOUNTS)["data"]
    assert {key for key in before if after[key] != before[key]} == {"mongodb-geo"}
    journal = platform.journal.path.read_text()
    for encoded in (before["mongodb-geo"], after["mongodb-geo"]):
        assert encoded not in journal
        assert decoded(encoded) not in journal
    platform.undo()
    assert platform.get("Secret", ACCOUNTS)["data"] == before


def test_a_text_that_could_not_be_brought_back_is_not_changed(platform: FakePlatform) -> None:
    before = platform.get("Secret", ACCOUNTS)
    for other in (SecretKey("mongodb-rate-credentials", "application"), SecretKey(ACCOUNTS, "none")):
        with pytest.raises(PlatformError):
            platform.change_secret(SecretKey(ACCOUNTS, "mongodb-geo"), "x", copied_from=other)
    assert platform.get("Secret", ACCOUNTS) == before


def test_a_recreated_pod_of_the_same_name_counts_as_failed(
    platform: FakePlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve_pod(uid: str, restarts: int) -> None:
        ended = {"restartCount": restarts, "lastState": {"terminated": {"exitCode": 1}}}
        pod = {
            "metadata": {"name": "geo-0", "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"containerStatuses": [ended]},
        }
        monkeypatch.setattr(platform, "list", lambda *_: [pod])

    monkeypatch.setattr("faultset.collector.faults.stores.last_error_line", lambda *_, **__: None)
    serve_pod("first", restarts=3)
    before = observe_service(platform, "geo")
    assert find_service_failure(platform, "geo", {}, before) is None
    serve_pod("second", restarts=1)
    assert find_service_failure(platform, "geo", {}, before) == "geo-0 exited with code 1"
    serve_pod("first", restarts=4)
    assert find_service_failure(platform, "geo", {}, before) == "geo-0 exited with code 1"
