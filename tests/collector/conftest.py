"""Fixtures that start the application's real programs on loopback addresses, without a platform."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from faultset.collector.apps import load_app

sys.path.insert(0, str(Path(__file__).parent))

from span_receiver import Receiver
from stage import Stage, WarmParent


@pytest.fixture(scope="session")
def warm_parent() -> Iterator[WarmParent]:
    """The warm parent, shared by all tests."""
    made = WarmParent()
    yield made
    made.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver of spans."""
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def stage(tmp_path: Path, warm_parent: WarmParent, receiver: Receiver) -> Iterator[Stage]:
    """HotelReservation, nothing started."""
    made = Stage(tmp_path, load_app("hotel"), warm_parent, receiver.endpoint)
    yield made
    made.close()
