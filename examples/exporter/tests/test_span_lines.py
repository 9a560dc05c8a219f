"""Check the contract of the exporter, and that it writes every span."""

from __future__ import annotations

import json
from pathlib import Path

from faultset.datasets import open_dataset
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.exports.exporter import export_dataset
from faultset.datasets.testing import check_exporter


def test_the_exporter_meets_the_contract() -> None:
    check_exporter("span-lines")


def test_every_span_is_a_line(tmp_path: Path) -> None:
    write_example_dataset(tmp_path / "data", episodes=2)
    export_dataset("span-lines", tmp_path / "data", tmp_path / "out")
    dataset = open_dataset(tmp_path / "data")
    for episode in dataset.episodes:
        lines = (tmp_path / "out" / f"{episode}.jsonl").read_text().splitlines()
        assert len(lines) == len(dataset.view(episode).spans())
    assert set(json.loads((tmp_path / "out" / "labels.json").read_text())) == set(dataset.episodes)
