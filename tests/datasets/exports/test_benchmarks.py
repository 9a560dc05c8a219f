"""The layout of OpenRCA, and every layout of episodes with two faults."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from faultset.core.plugins import plugins
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.exports.exporter import GROUP, ExportResult, export_dataset
from faultset.datasets.format.episodes import EpisodeWriter
from faultset.datasets.format.versions import create_version
from faultset.datasets.imports.importer import import_dataset

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"
FAULTY, HEALTHY = "31bf76ab9496", "0d3c530732fb"
ASKED = {"task_1": "T", "task_2": "R", "task_3": "C", "task_4": "TR", "task_5": "TC", "task_6": "CR", "task_7": "TCR"}
POINTS = {
    "C": r"The (?:\d+-th|only) predicted root cause component is ([^\n]+)",
    "R": r"The (?:\d+-th|only) predicted root cause reason is ([^\n]+)",
    "T": r"The (?:\d+-th|only) root cause occurrence time is within 1 minutes \(i\.e\., <=1min\) of ([^\n]+)",
}
"""The patterns by which OpenRCA's judge reads scoring points."""


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> Dataset:
    """One episode of the sample with a fault, and one without."""
    root = tmp_path_factory.mktemp("two")
    for episode in (FAULTY, HEALTHY):
        shutil.copytree(SAMPLE / "episodes" / episode, root / "episodes" / episode)
    create_version(root, provenance={})
    return open_dataset(root)


@pytest.fixture(scope="module")
def as_openrca(two, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("openrca") / "systems"
    done = export_dataset("openrca", two.root, out)
    assert done.left_out == {HEALTHY: "OpenRCA needs a fault, but the episode has none"}
    return out


@pytest.fixture(scope="module")
def from_openrca(as_openrca, tmp_path_factory) -> Dataset:
    out = tmp_path_factory.mktemp("openrca") / "back"
    import_dataset("openrca", as_openrca, out, workers=1)
    return open_dataset(out)


def stamps(frame: pd.DataFrame) -> pd.Series:
    return frame["time"].astype("int64")


def test_openrca_gives_rates_and_levels_back_within_the_recording(two, from_openrca):
    (episode,) = from_openrca.episodes
    back = from_openrca.view(episode)
    wide = two.view(FAULTY).wide()
    samples = back.metrics()
    assert samples["value"].count() == wide.count().sum() == len(samples)
    found = samples.astype({"service": str, "metric": str}).pivot(
        index="time", columns=["service", "metric"], values="value"
    )
    np.testing.assert_allclose(found.to_numpy(), wide.loc[found.index, found.columns].to_numpy(), rtol=1e-12)
    assert abs(back.window[0] - two.view(FAULTY).window[0]) <= 2 * 10**9
    assert abs(back.window[1] - two.view(FAULTY).window[1]) <= 2 * 10**9
    assert set(back.services) == set(two.view(FAULTY).services)


def test_openrca_gives_spans_log_lines_and_the_truth_back(two, from_openrca):
    (episode,) = from_openrca.episodes
    view, back = two.view(FAULTY), from_openrca.view(episode)
    spans = view.spans()
    merged = spans.merge(back.spans(), on=["trace_id", "span_id"], suffixes=("", "_back"))
    assert len(merged) == len(spans)
    assert (stamps(merged) // 10**6 == merged["time_back"].astype("int64") // 10**6).all()
    assert ((merged["duration_ns"] - merged["duration_ns_back"]).abs() <= 500).all()
    for column in ("service", "operation", "parent_span_id", "status_code"):
        assert merged[column].astype(object).equals(merged[f"{column}_back"].astype(object)), column
    assert (merged.loc[merged["status"] == "error", "status_back"] == "error").all()
    logs = view.logs()
    inside = stamps(logs) // 10**9 * 10**9 >= back.window[0]
    wanted = sorted(f"{line.level}: {line.message}" for line in logs[inside].itertuples())
    assert sorted(back.logs()["message"]) == wanted
    label, truth = from_openrca.label(episode), two.label(FAULTY)
    assert (label.fault, label.targets) == (truth.fault, truth.targets)
    assert abs(label.inject_start_ns - truth.inject_start_ns) < 1_000


def test_openrcas_judge_finds_what_each_of_the_seven_tasks_asks_for(two, as_openrca):
    queries = pd.read_csv(as_openrca / "hotel" / FAULTY / "query.csv")
    (record,) = pd.read_csv(as_openrca / "hotel" / FAULTY / "record.csv").to_dict("records")
    right = {"C": "mongodb-geo", "R": "revoke-auth", "T": record["datetime"]}
    assert {"C": record["component"], "R": record["reason"]}.items() <= right.items()
    assert queries["task_index"].tolist() == list(ASKED)
    for task, instruction, points in queries.astype(str).to_numpy().tolist():
        found = {kind: re.findall(pattern, points) for kind, pattern in POINTS.items()}
        assert found == {kind: [right[kind]] if kind in ASKED[task] else [] for kind in POINTS}
        assert "2026, from 10:00 to 10:30 (UTC+8)" in instruction
        assert not any(word in instruction for word in right.values())


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
