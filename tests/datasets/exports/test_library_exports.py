"""Exports that other libraries open: each is opened with the library it is for, where that is installed."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample, Timestamp

from faultset.core.errors import DataError
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.exports.exporter import ExportOptions, export_dataset
from faultset.datasets.exports.monitoring import openmetrics_text
from faultset.datasets.exports.wide import LENGTH
from faultset.datasets.training.frameworks import polars_tables

# What these libraries warn of is no matter of ours.
with_library = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def dataset(example_root) -> Dataset:
    return open_dataset(example_root)


@pytest.fixture
def exported(example_root, tmp_path):
    def export(name: str, **options) -> Path:
        export_dataset(name, example_root, tmp_path / name, options=ExportOptions(**options))
        return tmp_path / name

    return export


def rows_of(dataset: Dataset, table: str, folder: str = "telemetry") -> int:
    return sum(dataset.files[episode][f"{folder}/{table}.parquet"].rows or 0 for episode in dataset.episodes)


@with_library
def test_hugging_face_loads_every_table_with_both_subsets(exported, dataset, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pytest.importorskip("datasets.arrow_dataset", reason="the extra exports is not installed")
    library = importlib.import_module("datasets")
    out = exported("huggingface")
    assert set(library.get_dataset_config_names(str(out))) >= {"metrics", "spans", "logs", "requests", "label"}
    for table, folder in (("metrics", "telemetry"), ("spans", "telemetry"), ("logs", "telemetry"), ("label", "truth")):
        loaded = library.load_dataset(str(out), table, cache_dir=str(tmp_path / "cache"))
        assert sum(side.num_rows for side in loaded.values()) == rows_of(dataset, table, folder)
        for side, rows in loaded.items():
            assert set(rows.unique("episode")) <= set(dataset.splits["by-episode"][side])
    assert loaded["train"].features["targets"].feature.dtype == "string"
    assert "4 episodes" in (out / "README.md").read_text()


@with_library
def test_croissant_metadata_is_valid_and_gives_the_rows(exported, dataset):
    library = pytest.importorskip("mlcroissant")
    out = exported("croissant")
    described = library.Dataset(jsonld=str(out / "croissant.json"))
    assert not described.metadata.ctx.issues.errors
    assert len(list(described.records("requests"))) == rows_of(dataset, "requests")
    records = list(described.records("label"))
    assert len(records) == len(dataset.episodes)
    faults = {record["label/fault"] for record in records}
    assert {fault.decode() if isinstance(fault, bytes) else fault for fault in faults if fault} == {
        label.fault for label in map(dataset.label, dataset.episodes) if label.fault
    }


def test_duckdb_sees_the_datasets_own_files_as_views(exported, dataset):
    connection = duckdb.connect()
    connection.execute((exported("duckdb") / "views.sql").read_text())
    kinds = connection.execute("SELECT DISTINCT table_type FROM information_schema.tables").fetchall()
    assert kinds == [("VIEW",)]
    found = connection.execute("SELECT episode, count(*) FROM logs GROUP BY episode").fetchall()
    assert dict(found) == {episode: len(dataset.view(episode).table("logs")) for episode in dataset.episodes}
    joined = connection.execute("SELECT count(*) FROM label JOIN requests USING (episode)").fetchone()
    assert joined == (rows_of(dataset, "requests"),)


@with_library
def test_polars_scans_the_datasets_own_files(dataset):
    polars = pytest.importorskip("polars")
    tables = polars_tables(dataset)
    assert isinstance(tables["logs"], polars.LazyFrame)
    assert tables["logs"].select(polars.len()).collect().item() == rows_of(dataset, "logs")


def seconds_of(sample: Sample) -> float:
    assert sample.timestamp is not None
    return float(sample.timestamp)


def test_openmetrics_text_gives_every_sample_back(exported, dataset):
    episode = dataset.episodes[0]
    text = (exported("openmetrics") / f"{episode}.om").read_text()
    found = {
        (sample.name, tuple(sorted(sample.labels.items())), round(seconds_of(sample), 3)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    table = dataset.view(episode).table("metrics")
    assert len(found) == len(table)
    row = table.slice(len(table) // 2, 1).to_pylist()[0]
    labels = {name: row[name] for name in ("service", "pod", "container") if row[name]} | json.loads(row["labels"])
    key = (row["metric"], tuple(sorted(labels.items())), round(row["time"].value / 1e9, 3))
    assert found[key] == row["value"]


def test_openmetrics_text_escapes_what_labels_hold():
    hostile = 'a"b\\c\nd'
    table = pa.table(
        {
            "time": pa.array([1_760_000_000_000_000_001, 1_760_000_001_000_000_000], pa.timestamp("ns", tz="UTC")),
            "service": ["geo", "geo"],
            "pod": pa.array([None, None], pa.string()),
            "container": pa.array([None, None], pa.string()),
            "metric": ["x_total", "x_total"],
            "labels": [json.dumps({"path": hostile, "service": "other"})] * 2,
            "kind": ["counter", "counter"],
            "value": [1.5, float("inf")],
        }
    )
    families = list(text_string_to_metric_families(openmetrics_text(table)))
    assert [(family.name, family.type) for family in families] == [("x", "counter")]
    first, second = families[0].samples
    assert first.labels == {"path": hostile, "service": "geo", "label_service": "other"}
    assert (first.value, second.value) == (1.5, float("inf"))
    assert first.timestamp == Timestamp(1_760_000_000, 1)


def test_otlp_is_what_the_protocol_defines(exported, dataset):
    episode = dataset.episodes[0]
    folder = exported("otlp-json") / episode
    spans, logs = {}, []
    for line in (folder / "traces.jsonl").read_text().splitlines():
        request = ParseDict(_with_base64_ids(json.loads(line)), ExportTraceServiceRequest())
        for resource in request.resource_spans:
            spans |= {span.span_id: (resource, span) for scope in resource.scope_spans for span in scope.spans}
    for line in (folder / "logs.jsonl").read_text().splitlines():
        request = ParseDict(_with_base64_ids(json.loads(line)), ExportLogsServiceRequest())
        logs += [record for one in request.resource_logs for scope in one.scope_logs for record in scope.log_records]
    table = dataset.view(episode).table("spans")
    assert len(spans) == len(table)
    row = table.slice(len(table) // 2, 1).to_pylist()[0]
    resource, span = spans[bytes.fromhex(row["span_id"])]
    assert span.trace_id.hex() == row["trace_id"]
    assert span.start_time_unix_nano == row["time"].value
    assert span.end_time_unix_nano - span.start_time_unix_nano == row["duration_ns"]
    assert span.kind == Span.SpanKind.Value(f"SPAN_KIND_{row['kind'].upper()}")
    names = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert names["service.name"] == row["reported_service"]
    assert sorted(record.body.string_value for record in logs) == sorted(
        dataset.view(episode).table("logs")["message"].to_pylist()
    )


def _with_base64_ids(value: Any) -> Any:
    """OTLP writes ids in hexadecimal, where JSON of protocol buffers has Base64."""
    import base64

    if isinstance(value, list):
        return [_with_base64_ids(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: base64.b64encode(bytes.fromhex(one)).decode()
        if key in ("traceId", "spanId", "parentSpanId")
        else _with_base64_ids(one)
        for key, one in value.items()
    }


def test_tsb_ad_files_say_in_their_names_where_training_ends_and_the_anomaly_begins(exported, dataset):
    out = exported("tsb-ad", roles=["cpu", "latency"])
    files = pd.read_csv(out / "episodes.csv")
    assert len(files) == sum(dataset.label(episode).fault is not None for episode in dataset.episodes)
    for name, episode in files.itertuples(index=False):
        # As TSB-AD's own examples read a file.
        frame = pd.read_csv(out / name).dropna()
        data, label = frame.iloc[:, 0:-1].values.astype(float), frame["Label"].astype(int).to_numpy()
        train, first = int(name.split(".")[0].split("_")[-3]), int(name.split(".")[0].split("_")[-1])
        assert len(data) == len(dataset.view(episode).wide())
        assert int(np.argmax(label)) == first >= train
        context = dataset.view(episode).context
        assert train == (context.reference_end_ns - context.view_start_ns) // 10**9


@with_library
def test_ts_files_are_a_classification_problem(exported, dataset):
    out = exported("ts", roles=["cpu"])
    columns = json.loads((out / "dimensions.json").read_text())
    lines = (out / "faultset_TRAIN.ts").read_text().splitlines()
    cases = lines[lines.index("@data") + 1 :]
    assert len(cases) == len(dataset.splits["by-episode"]["train"])
    assert all(len(case.split(":")) == len(columns) + 1 for case in cases)
    library = pytest.importorskip("aeon.datasets")
    values, classes = library.load_from_ts_file(str(out / "faultset_TRAIN.ts"))
    assert values.shape == (len(cases), len(columns), 40)
    names = (out / "train_episodes.txt").read_text().split()
    assert [str(one) for one in classes] == [dataset.label(name).fault or "none" for name in names]


def test_ts_files_of_unequal_episodes_are_refused(example_copy, tmp_path, monkeypatch):
    from faultset.datasets.exports import wide

    lengths = dict(zip(open_dataset(example_copy).episodes, (3, 4, 5, 6), strict=True))
    frame = lambda _, episode, __: pd.DataFrame({"a": [1.0] * lengths[episode]})  # noqa: E731
    monkeypatch.setattr(wide, "_filled_frame", frame)
    with pytest.raises(DataError, match="must have the same length, but episodes have 3 to 6 steps"):
        export_dataset("ts", example_copy, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_windows_are_mapped_into_memory_and_follow_the_labels(exported, dataset):
    out = exported("windows", roles=["cpu"])
    columns = json.loads((out / "columns.json").read_text())
    for side in ("train", "test"):
        values = np.load(out / side / "values.npy", mmap_mode="r")
        labels, episodes = np.load(out / side / "labels.npy"), np.load(out / side / "episodes.npy")
        assert isinstance(values, np.memmap)
        assert values.shape[1:] == (LENGTH, len(columns))
        assert len(values) == len(labels) == len(episodes)
        assert set(episodes) == set(dataset.splits["by-episode"][side])
        faulty = {episode for episode in set(episodes) if dataset.label(str(episode)).fault is not None}
        assert {str(one) for one in episodes[labels.any(axis=1)]} == {str(one) for one in faulty}


def test_published_tables_are_the_datasets_own_bytes(exported, dataset):
    out = exported("croissant")
    for side, episodes in dataset.splits["by-episode"].items():
        for episode in episodes:
            for name in ("telemetry/logs.parquet", "truth/label.parquet"):
                assert (out / side / episode / name).read_bytes() == (dataset.path(episode) / name).read_bytes()
                assert pq.read_schema(out / side / episode / name).names[0] == "episode"
