"""Import miniature copies of foreign data."""

from __future__ import annotations

from pathlib import Path

from faultset.datasets import examine
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.imports.importer import import_dataset


def load(name: str, root: Path, out: Path) -> Dataset:
    """Import data in a format with one process and open the dataset."""
    import_dataset(name, root, out, workers=1)
    return open_dataset(out)


def problems(root: Path) -> list[str]:
    """Return the issues that are found without an import."""
    return [issue.problem for issue in examine(root).data_issues]
