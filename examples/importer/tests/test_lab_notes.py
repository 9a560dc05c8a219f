"""Check the contract of the importer, and the labels that it reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from faultset.datasets import open_dataset
from faultset.datasets.imports.importer import import_dataset
from faultset.datasets.testing import check_importer


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """Write two experiments of a hundred seconds."""
    for name, service in (("a", "cart"), ("b", "web")):
        folder = tmp_path / "sample" / name
        folder.mkdir(parents=True)
        rows = "".join(f"{second},{0.1 + second % 3 / 10},{0.2}\n" for second in range(100))
        (folder / "metrics.csv").write_text(f"time,cart/cpu,web/cpu\n{rows}")
        (folder / "fault.json").write_text(json.dumps({"name": "busy", "service": service, "began_s": 60}))
    return tmp_path / "sample"


def test_the_importer_meets_the_contract(sample: Path) -> None:
    check_importer("lab-notes", sample)


def test_the_label_is_that_of_the_experiment(sample: Path, tmp_path: Path) -> None:
    import_dataset("lab-notes", sample, tmp_path / "out")
    dataset = open_dataset(tmp_path / "out")
    labels = [dataset.label(episode) for episode in dataset.episodes]
    assert {label.targets for label in labels} == {("cart",), ("web",)}
    assert {label.inject_start_ns for label in labels} == {60_000_000_000}
