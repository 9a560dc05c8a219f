"""SocialNetwork's programs on loopback addresses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from span_receiver import Receiver
from stage import Stage, WarmParent

from faultset.collector.apps import load_app


@pytest.fixture
def social(tmp_path: Path, warm_parent: WarmParent, receiver: Receiver) -> Iterator[Stage]:
    """SocialNetwork, nothing started."""
    made = Stage(tmp_path, load_app("social"), warm_parent, receiver.endpoint)
    yield made
    made.close()
