"""The committed sample: made by the collector, small, sound, and giving nothing away."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultset.datasets.checks.verification import verify
from faultset.datasets.dataset import open_dataset
from faultset.datasets.format.schemas import TABLES

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"


def test_it_is_small_and_has_episodes_with_and_without_a_fault() -> None:
    dataset = open_dataset(SAMPLE)
    labels = [dataset.label(episode) for episode in dataset.episodes]
    assert len(labels) >= 8
    assert sum(label.fault is None for label in labels) >= 2
    assert {label.verdict for label in labels if label.fault} <= {"manifest", "latent"}
    assert sum(file.stat().st_size for file in SAMPLE.rglob("*") if file.is_file()) < 5_000_000


def test_it_was_made_by_the_collector() -> None:
    provenance = open_dataset(SAMPLE).provenance
    assert provenance["request"]["platform"] == "local"
    assert provenance["faultset"]


def test_nothing_in_it_is_damaged_or_leaks() -> None:
    assert [finding for finding in verify(SAMPLE) if finding.severity == "error"] == []


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_rows(table: str) -> None:
    dataset = open_dataset(SAMPLE)
    assert sum(dataset.view(episode).table(table).num_rows for episode in dataset.episodes) > 0
