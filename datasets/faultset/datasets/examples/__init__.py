"""A small synthetic dataset for tests, documentation and first tries."""

from __future__ import annotations

from faultset.datasets.examples.dataset import write_example_dataset
from faultset.datasets.examples.scenario import START_NS

__all__ = ["START_NS", "write_example_dataset"]
