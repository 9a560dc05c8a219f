"""A session of commands on hotel in memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from faultset.collector.apps import load_app
from faultset.collector.mitigation.commands import Kubectl
from faultset.collector.mitigation.live_state import KubectlSession, LiveState
from faultset.collector.platforms.fake import FakePlatform
from faultset.collector.platforms.journal import Journal


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[FakePlatform]:
    """HotelReservation in memory."""
    made = FakePlatform(load_app("hotel"), Journal(tmp_path / "journal.jsonl"))
    made.deploy()
    yield made
    made.journal.close()


@pytest.fixture
def session(platform: FakePlatform, tmp_path: Path) -> KubectlSession:
    """The session of an operator of hotel; files of apply lie in the test's folder."""
    return KubectlSession(
        state=LiveState(platform, frozenset({"hotel"}), time.time_ns),
        original_objects=frozenset(platform.objects),
        folder=tmp_path,
        sleep=lambda seconds: None,
    )


@pytest.fixture
def kubectl(session: KubectlSession) -> Kubectl:
    """The commands."""
    return Kubectl(session)
