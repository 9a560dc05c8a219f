"""Applications' programs on loopback addresses, nothing started."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from span_receiver import Receiver
from stage import Stage, WarmParent

from faultset.collector.apps import load_app


@pytest.fixture
def shop(tmp_path: Path, warm_parent: WarmParent, receiver: Receiver) -> Iterator[Stage]:
    with contextlib.closing(Stage(tmp_path, load_app("astronomy"), warm_parent, receiver.endpoint)) as stage:
        yield stage


@pytest.fixture
def social(tmp_path: Path, warm_parent: WarmParent, receiver: Receiver) -> Iterator[Stage]:
    with contextlib.closing(Stage(tmp_path, load_app("social"), warm_parent, receiver.endpoint)) as stage:
        yield stage
