"""The Astronomy Shop's programs on loopback addresses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from span_receiver import Receiver
from stage import Stage, WarmParent

from faultset.collector.apps import load_app


@pytest.fixture
def shop(tmp_path: Path, warm_parent: WarmParent, receiver: Receiver) -> Iterator[Stage]:
    """The Astronomy Shop, nothing started."""
    made = Stage(tmp_path, load_app("astronomy"), warm_parent, receiver.endpoint)
    yield made
    made.close()
