"""Data in which metric methods have nothing to compare with is named."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faultset.datasets.checks.telemetry import reference_findings
from faultset.datasets.dataset import open_dataset
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.format.context import read_context
from faultset.datasets.views import EpisodeView


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_example_dataset(tmp_path, episodes=1, seed=1, baseline_s=20, fault_s=20)
    return open_dataset(tmp_path).path(open_dataset(tmp_path).episodes[0])


def messages(folder: Path) -> list[str]:
    return [finding.message for finding in reference_findings({"e": EpisodeView(folder)})]


def rewrite(folder: Path, keep) -> None:
    path = folder / "telemetry" / "metrics.parquet"
    table = pq.read_table(path)
    pq.write_table(table.filter(pa.array(keep(table))), path)


def test_a_sound_episode_has_no_finding(folder: Path):
    assert messages(folder) == []


def test_a_reference_without_samples_is_named(folder: Path):
    end_ns = read_context(folder).reference_end_ns
    rewrite(folder, lambda table: table["time"].cast(pa.int64()).to_numpy() >= end_ns)
    (message,) = messages(folder)
    assert message.startswith("1 episodes have no metric sample in the reference (first: e)")


def test_a_step_longer_than_the_reference_is_named(folder: Path):
    context = read_context(folder)
    changed = dataclasses.replace(context, source_intervals_s={**context.source_intervals_s, "metrics": 60.0})
    (folder / "context.json").write_text(changed.to_json())
    (message,) = messages(folder)
    assert message.startswith("1 episodes have a step longer than the reference")


def test_candidates_without_metrics_are_counted(folder: Path):
    rewrite(folder, lambda table: [name != "geo" for name in table["service"].to_pylist()])
    (message,) = messages(folder)
    assert message.startswith("1 episodes have candidates without any metric (first: e, 1 of 6)")
