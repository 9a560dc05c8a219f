from __future__ import annotations

from pathlib import Path

import pytest

from faultset.datasets import Dataset, open_dataset
from faultset.datasets.tools.toolset import EpisodeTools

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"
POD_FAILURE = "a5edb68659bc"
"""geo's image was replaced, so its container began again and answers nothing."""
REVOKED_ACCESS = "31bf76ab9496"
"""geo's pods came and went, and are in a back-off."""


@pytest.fixture(scope="session")
def sample() -> Dataset:
    return open_dataset(SAMPLE)


@pytest.fixture
def tools(sample: Dataset) -> EpisodeTools:
    return sample[POD_FAILURE].tools()


@pytest.fixture
def busy_tools(sample: Dataset) -> EpisodeTools:
    return sample[REVOKED_ACCESS].tools()
