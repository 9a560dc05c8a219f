from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from faultset.agents.interface.session import AgentSession
from faultset.datasets import open_dataset

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"
EPISODE = "a5edb68659bc"


@pytest.fixture
def session() -> Callable[[str], AgentSession]:
    """Make a session on an episode in which geo's image was replaced."""

    def make(task: str = "all") -> AgentSession:
        return AgentSession(open_dataset(SAMPLE)[EPISODE].tools(), task)  # type: ignore[arg-type]

    return make
