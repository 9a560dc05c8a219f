"""Exports in the CSV layouts of OpenRCA and AIOpsLab, and what their importers give back."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from faultset.core.errors import DataError
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.exports.exporter import export_dataset
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


@pytest.fixture(scope="module")
def as_aiopslab(two, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("aiopslab") / "exports"
    export_dataset("aiopslab", two.root, out)
    return out


@pytest.fixture(scope="module")
def from_aiopslab(as_aiopslab, tmp_path_factory) -> Dataset:
    out = tmp_path_factory.mktemp("aiopslab") / "back"
    import_dataset("aiopslab", as_aiopslab / FAULTY, out, workers=1)
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


def test_aiopslab_gives_the_samples_of_pods_back_exactly(two, from_aiopslab):
    (episode,) = from_aiopslab.episodes
    wanted, found = two.view(FAULTY).metrics(), from_aiopslab.view(episode).metrics()
    keys = ["time", "service", "pod", "metric"]
    wanted = wanted[wanted["pod"].notna() & wanted["labels"].isin(["{}", '{"interface":"eth0"}', '{"cpu":"total"}'])]
    merged = wanted.merge(found, on=keys, suffixes=("", "_back"))
    assert len(merged) == len(wanted) == len(found)
    assert (merged["value"] == merged["value_back"]).all()
    assert (merged["kind"].astype(str) == merged["kind_back"].astype(str)).all()
    network = merged[merged["metric"].str.contains("network")]
    assert len(network)
    assert (network["labels"].astype(str) == network["labels_back"].astype(str)).all()


def test_aiopslab_gives_spans_log_lines_and_the_truth_back(two, from_aiopslab):
    (episode,) = from_aiopslab.episodes
    view, back = two.view(FAULTY), from_aiopslab.view(episode)
    spans = view.spans()
    merged = spans.merge(back.spans(), on=["trace_id", "span_id"], suffixes=("", "_back"))
    assert len(merged) == len(spans)
    assert (stamps(merged) // 1_000 == merged["time_back"].astype("int64") // 1_000).all()
    for column in ("service", "operation", "parent_span_id", "status_code"):
        assert merged[column].astype(object).equals(merged[f"{column}_back"].astype(object)), column
    wanted, found = view.logs(), back.logs()
    assert (stamps(wanted).to_numpy() == stamps(found).to_numpy()).all()
    assert (wanted["pod"].astype(str).to_numpy() == found["pod"].astype(str).to_numpy()).all()
    texts = wanted["level"].astype(str) + ": " + wanted["message"]
    assert (texts.to_numpy() == found["message"].to_numpy()).all()
    known = wanted["level"] != "trace"
    assert (wanted["level"].astype(str)[known].to_numpy() == found["level"].astype(str)[known.to_numpy()]).all()
    label, truth = from_aiopslab.label(episode), two.label(FAULTY)
    assert (label.fault, label.targets) == (truth.fault, truth.targets)
    assert (label.system_level, label.fault_type) == (truth.system_level, truth.fault_type)
    assert abs(label.inject_start_ns - truth.inject_start_ns) < 1_000_000


def test_aiopslabs_label_says_what_its_reader_asks_for(as_aiopslab):
    (file,) = (as_aiopslab / FAULTY).rglob("label.json")
    assert {"fault", "targets", "inject_time"} <= set(json.loads(file.read_text()))
    assert re.fullmatch(r"telemetry_data_\d{8}_\d{6}", file.parent.name)
    (healthy,) = (as_aiopslab / HEALTHY).rglob("label.json")
    assert json.loads(healthy.read_text()) == {"fault": None}


def test_telemetry_without_pods_has_no_place_in_aiopslabs_layout(from_openrca, tmp_path):
    folder = tmp_path / "rcaeval"
    export_dataset("rcaeval", from_openrca.root, folder / "cases")
    import_dataset("rcaeval", folder / "cases", folder / "back", workers=1)
    with pytest.raises(DataError, match="AIOpsLab needs metrics of pods, but the episode has none"):
        export_dataset("aiopslab", folder / "back", folder / "out")
    assert not (folder / "out").exists()
