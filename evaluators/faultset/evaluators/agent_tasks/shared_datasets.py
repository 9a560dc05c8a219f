"""Datasets that the samples of a task share, so that each is opened once."""

from __future__ import annotations

from functools import lru_cache

from faultset.agents.runs.inspect_metadata import AskedQuestion
from faultset.datasets import Dataset, open_dataset


def shared_dataset(question: AskedQuestion) -> Dataset:
    """Return the dataset of a sample's episode."""
    return _open(question.folder, question.version)


@lru_cache(maxsize=4)
def _open(folder: str, version: str) -> Dataset:
    return open_dataset(folder, version)
