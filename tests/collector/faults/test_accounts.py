"""Passwords that faults change stand in Secrets alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from faultset.collector.apps import load_app
from faultset.collector.faults.registry import get_fault
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
