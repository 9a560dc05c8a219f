"""Every layout holds both faults of an episode that has two, or leaves it out and says why."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from faultset.core.plugins import plugins
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.exports.exporter import GROUP, ExportResult, export_dataset
from faultset.datasets.format.episodes import EpisodeWriter
from faultset.datasets.format.versions import create_version
from faultset.datasets.imports.importer import import_dataset

PAIRS = (("cpu-hog", "geo"), ("leak", "rate"))
REFUSING = {
    "rcaeval": "a case of RCAEval has one target, but the episode has 2",
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Four episodes; the two with a fault have two faults each."""
    folder = tmp_path_factory.mktemp("several")
    write_example_dataset(folder / "one", episodes=4, seed=1, baseline_s=20, fault_s=20)
    one, root = open_dataset(folder / "one"), folder / "data"
    for episode in one.episodes:
        shutil.copytree(one.root / "episodes" / episode, root / "episodes" / episode)
        label = one.label(episode)
        if label.fault is None:
            continue
        row = label.as_row() | {
            "fault": "cpu-hog + leak",
            "targets": ["geo", "rate"],
            "root_causes": [
                {"kind": "Pod", "name": target, "service": target, "accepted": [target]} for _, target in PAIRS
            ],
            "faults": [
                {"fault": fault, "target": target, "parameters": {}, "inject_start": label.inject_start_ns}
                for fault, target in PAIRS
            ],
        }
        del row["episode"]
        with EpisodeWriter(folder / "draft", episode) as writer:
            writer.write_context(one.view(episode).context)
            writer.write_truth(row, [], root / "episodes" / episode / "truth" / "journal.jsonl")
            path = writer.commit()
        shutil.copy(path / "truth" / "label.parquet", root / "episodes" / episode / "truth" / "label.parquet")
    create_version(root, provenance={})
    return open_dataset(root)


def exported(name: str, dataset: Dataset, out: Path) -> ExportResult:
    return export_dataset(name, dataset.root, out)


@pytest.mark.parametrize("name", sorted(plugins(GROUP).keys() - REFUSING.keys()))
def test_a_layout_takes_episodes_with_several_faults(name: str, dataset: Dataset, tmp_path: Path) -> None:
    reasons = exported(name, dataset, tmp_path / "out").left_out
    several = [episode for episode in dataset.episodes if dataset.label(episode).fault]
    assert len(several) == 2
    assert not reasons.keys() & set(several)


@pytest.mark.parametrize("name", REFUSING)
def test_a_layout_that_cannot_hold_them_says_so(name: str, dataset: Dataset, tmp_path: Path) -> None:
    export = plugins(GROUP)[name].load()(dataset, None, tmp_path / "out")
    reasons = {export.unavailable_reason(one) for one in dataset.episodes if dataset.label(one).fault}
    assert reasons == {REFUSING[name]}


def test_openrca_has_a_record_for_each_fault_under_its_own_name(dataset: Dataset, tmp_path: Path) -> None:
    exported("openrca", dataset, tmp_path / "out")
    records = pd.read_csv(next((tmp_path / "out").rglob("record.csv")))
    assert list(zip(records["reason"], records["component"], strict=True)) == [*PAIRS]


def test_rcabench_gives_both_faults_back(dataset: Dataset, tmp_path: Path) -> None:
    exported("rcabench", dataset, tmp_path / "out")
    injection = json.loads(next((tmp_path / "out").rglob("injection.json")).read_text())
    assert [(leaf["chaos_type"], leaf["app"]) for leaf in injection["engine_config"]] == [*PAIRS]
    import_dataset("rcabench", tmp_path / "out", tmp_path / "back", workers=1)
    back = open_dataset(tmp_path / "back")
    assert back.label(back.episodes[0]).problems == PAIRS


def test_wide_tables_name_faults_and_targets(dataset: Dataset, tmp_path: Path) -> None:
    exported("wide-csv", dataset, tmp_path / "out")
    labels = pd.read_csv(tmp_path / "out" / "labels.csv").dropna(subset=["fault"])
    assert set(labels["fault"]) == {"cpu-hog + leak"}
    assert set(labels["targets"]) == {"geo rate"}
