"""The Parquet layouts of RCAEval and rcabench."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Container
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from faultset.core.files import parquet_path
from faultset.core.times import SECOND_NS
from faultset.datasets.dataset import Dataset
from faultset.datasets.exports.exporter import ExportLayout, ExportOptions
from faultset.datasets.format.labels import Label, RootCause

pc: Any = pyarrow.compute  # type checkers do not see its functions

_FAILED = 2
"""gRPC's code for unknown errors."""


class RCAEvalExport(ExportLayout):
    """Cases `<app>_<service>_<fault>_<number>` with metrics.parquet, logs.parquet and traces.parquet."""

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None:
        super().__init__(dataset, options, folder)
        self._numbers: Counter[str] = Counter()
        self._index: list[dict[str, Any]] = []

    def unavailable_reason(self, episode: str) -> str | None:
        """Return a reason if the episode has no fault, or not exactly one target."""
        label = self.dataset.label(episode)
        if label.fault is None:
            return "RCAEval needs a fault, but the episode has none"
        if len(label.targets) != 1:
            return f"a case of RCAEval has one target, but the episode has {len(label.targets)}"
        return None

    def write(self, episode: str) -> None:
        """Write a case: metrics on a grid of whole seconds, log lines and spans."""
        view, label = self.dataset.view(episode), self.dataset.label(episode)
        app = _word(view.context.app)
        # `unavailable_reason` refuses episodes without a fault.
        assert label.fault is not None
        assert label.onset_ns is not None
        service, fault = _word(label.targets[0]), _word(label.fault)
        stem = f"{app}_{service}_{fault}"
        self._numbers[stem] += 1
        case = f"{stem}_{self._numbers[stem]}"
        folder = self.folder / case
        folder.mkdir()
        frame = view.wide(max(1.0, self.options.step_s), self.options.roles)
        times = pa.array(pd.DatetimeIndex(frame.index).as_unit("ns").asi8 // SECOND_NS)
        names = [f"{_word(owner)}_{metric}" for owner, metric in frame.columns]
        arrays = [pa.array(frame.iloc[:, number].to_numpy(), from_pandas=True) for number in range(len(names))]
        _write(pa.table([times, *arrays], names=["time", *names]), folder / "metrics.parquet")
        onset = label.onset_ns // SECOND_NS
        (folder / "inject_time.txt").write_text(f"{onset}\n")
        logs, spans = _logs(view.table("logs")), _traces(view.table("spans"))
        if len(logs):
            _write(logs, folder / "logs.parquet")
        if len(spans):
            _write(spans, folder / "traces.parquet")
        self._index.append(
            {
                "dataset": app,
                "case": case,
                "root_cause_service": service,
                "fault": fault,
                "n_metrics": len(names),
                "inject_time": onset,
                "n_logs": len(logs),
                "n_traces": len(spans),
            }
        )

    def finish(self) -> None:
        """Write the index."""
        _write(pa.Table.from_pylist(self._index), self.folder / "cases.parquet")


def _word(name: str) -> str:
    """Return a name without the separators of RCAEval's names."""
    return re.sub(r"[_/\s]+", "-", name)


def _write(table: pa.Table, path: Path) -> None:
    pq.write_table(table, parquet_path(path), compression="zstd")


def _logs(logs: pa.Table) -> pa.Table:
    rows = {
        "timestamp": logs["time"].cast(pa.int64()),
        "container_name": pc.coalesce(logs["service"].cast(pa.string()), logs["container"].cast(pa.string())),
        "message": logs["message"],
        "level": logs["level"].cast(pa.string()),
    }
    return pa.table(rows)


def _traces(spans: pa.Table) -> pa.Table:
    starts_ns = spans["time"].cast(pa.int64()).to_numpy()
    service = pc.coalesce(spans["service"].cast(pa.string()), spans["reported_service"].cast(pa.string()))
    status = spans["status"].cast(pa.string())
    code_of_status = pc.case_when(
        pc.make_struct(pc.equal(status, "error"), pc.equal(status, "ok")),
        pa.scalar(float(_FAILED)),
        pa.scalar(0.0),
        pa.scalar(None, pa.float64()),
    )
    rows = {
        "traceID": spans["trace_id"],
        "spanID": spans["span_id"],
        "serviceName": service,
        "methodName": spans["operation"].cast(pa.string()),
        "operationName": spans["operation"].cast(pa.string()),
        "startTimeMillis": starts_ns // 1_000_000,
        "startTime": starts_ns // 1_000,
        "duration": np.round(spans["duration_ns"].to_numpy() / 1_000).astype(np.int64),
        "statusCode": pc.coalesce(spans["status_code"].cast(pa.float64()), code_of_status),
        "parentSpanID": spans["parent_span_id"],
    }
    return pa.table(rows)


_CLOCK = pa.timestamp("ns", tz="UTC")
_POD, _CONTAINER = "attr.k8s.pod.name", "attr.k8s.container.name"
_STATISTIC = r"_(sum|count|bucket)$"


class RCABenchExport(ExportLayout):
    """`data/<dataset>/<datapack>/` and `meta/<dataset>/`, in the format of converted datapacks."""

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None:
        super().__init__(dataset, options, folder)
        self._name = re.sub(r"[^A-Za-z0-9_-]+", "-", dataset.root.resolve().name) or "faultset"
        self._data = folder / "data" / self._name
        self._meta = folder / "meta" / self._name
        self._rows: list[dict[str, Any]] = []
        self._data.mkdir(parents=True)
        self._meta.mkdir(parents=True)

    def unavailable_reason(self, episode: str) -> str | None:
        """Return a reason if the episode has no fault."""
        fault = self.dataset.label(episode).fault
        return "rcabench needs a fault, but the episode has none" if fault is None else None

    def write(self, episode: str) -> None:
        """Write a datapack, split at the onset."""
        view, label = self.dataset.view(episode), self.dataset.label(episode)
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", f"{view.context.app}-{episode}")
        folder = self._data / name
        folder.mkdir()
        onset = label.onset_ns
        assert onset is not None  # `unavailable_reason` refuses episodes without a fault
        metrics = view.table("metrics")
        tables = {
            "metrics": _samples(metrics, "gauge"),
            "metrics_sum": _samples(metrics, "counter"),
            "metrics_histogram": _histograms(metrics),
            "traces": _rcabench_traces(view.table("spans")),
            "logs": _rcabench_logs(view.table("logs")),
        }
        for kind, table in tables.items():
            before = pc.less(table["time"].cast(pa.int64()), onset)
            for stage, mask in (("normal", before), ("abnormal", pc.invert(before))):
                _write(table.filter(mask), folder / f"{stage}_{kind}.parquet")
        _write_json(folder / "env.json", _environment(view.window, onset, view.context.app))
        _write_json(folder / "injection.json", _injection(name, label))
        self._rows.append({"datapack": name, "label": label})

    def finish(self) -> None:
        """Write the index, labels and attributes."""
        index = [{"dataset": self._name, "datapack": row["datapack"]} for row in self._rows]
        labels = [
            {"dataset": self._name, "datapack": row["datapack"], "gt.level": "service", "gt.name": service}
            for row in self._rows
            for service in row["label"].targets
        ]
        attributes = [{"datapack": row["datapack"], "injection.fault_type": row["label"].fault} for row in self._rows]
        for name, rows in (("index", index), ("labels", labels), ("attributes", attributes)):
            pq.write_table(pa.Table.from_pylist(rows), parquet_path(self._meta / f"{name}.parquet"))


def _environment(view: tuple[int, int], onset: int, app: str) -> dict[str, str]:
    start, end = view[0] // SECOND_NS, -(-view[1] // SECOND_NS)
    onset_s = onset // SECOND_NS
    numbers = {"NORMAL_START": start, "NORMAL_END": onset_s, "ABNORMAL_START": onset_s, "ABNORMAL_END": end}
    return {"NAMESPACE": app, "DB_TIMEZONE": "UTC"} | {name: str(number) for name, number in numbers.items()}


def _names_a_pod(cause: RootCause) -> bool:
    """Return whether a cause names one pod; a Pod with the name of its service means any pod of the service."""
    return cause.kind == "Pod" and cause.name != cause.service


def _injection(name: str, label: Label) -> dict[str, Any]:
    def iso(instant: int | None) -> str | None:
        if instant is None:
            return None
        seconds, rest = divmod(instant, SECOND_NS)
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1_000:06d}Z"

    causes = label.root_causes
    truths = [
        {
            "service": [service],
            "pod": [cause.name for cause in causes if cause.service == service and _names_a_pod(cause)],
            "container": [],
            "metric": [cause.metric for cause in causes if cause.service == service and cause.metric],
            "function": [],
            "span": [],
        }
        for service in label.targets
    ]
    faults = {fault.target: fault.fault for fault in label.faults}
    leaves = [{"app": target, "chaos_type": faults.get(target, label.fault)} for target in label.targets]
    return {
        "name": name,
        "start_time": iso(label.onset_ns),
        "end_time": iso(label.recover_start_ns),
        "engine_config": leaves,
        "ground_truth": truths,
    }


def _samples(metrics: pa.Table, kind: str) -> pa.Table:
    rows = metrics.filter(pc.equal(metrics["kind"], kind))
    columns: dict[str, Any] = {
        "time": rows["time"].cast(_CLOCK),
        "metric": rows["metric"].cast(pa.string()),
        "value": rows["value"],
        "service_name": rows["service"].cast(pa.string()),
        _POD: rows["pod"].cast(pa.string()),
        _CONTAINER: rows["container"].cast(pa.string()),
    }
    return pa.table(columns | _attributes(rows["labels"], columns))


def _histograms(metrics: pa.Table) -> pa.Table:
    """Join count and sum of each series and time into a row; buckets are left out."""
    keys = ["service", "pod", "container", "labels"]
    tables = []
    for statistic in ("count", "sum"):
        rows = metrics.filter(pc.equal(metrics["kind"], statistic))
        family = pc.replace_substring_regex(rows["metric"].cast(pa.string()), _STATISTIC, "")
        # Joins never match null keys.
        columns = {key: pc.fill_null(rows[key].cast(pa.string()), "") for key in keys}
        columns |= {"time": rows["time"].cast(pa.int64()), "metric": family, statistic: rows["value"]}
        tables.append(pa.table(columns))
    joined = tables[0].join(tables[1], keys=["time", *keys, "metric"], join_type="full outer")
    joined = joined.sort_by([("metric", "ascending"), ("service", "ascending"), ("time", "ascending")])

    def text(name: str) -> pa.ChunkedArray:
        return pc.if_else(pc.equal(joined[name], ""), pa.scalar(None, pa.string()), joined[name])

    nulls = pa.nulls(len(joined), pa.float64())
    content: dict[str, Any] = {
        "time": joined["time"].cast(_CLOCK),
        "metric": joined["metric"],
        "service_name": text("service"),
        "count": joined["count"],
        "sum": joined["sum"],
        "min": nulls,
        "max": nulls,
        _POD: text("pod"),
        _CONTAINER: text("container"),
    }
    return pa.table(content | _attributes(joined["labels"], content))


def _rcabench_traces(spans: pa.Table) -> pa.Table:
    columns: dict[str, Any] = {
        "time": spans["time"].cast(_CLOCK),
        "trace_id": spans["trace_id"],
        "span_id": spans["span_id"],
        "parent_span_id": pc.fill_null(spans["parent_span_id"], ""),
        "service_name": spans["service"].cast(pa.string()),
        "span_name": spans["operation"].cast(pa.string()),
        "duration": spans["duration_ns"].cast(pa.uint64()),
        "attr.span_kind": pc.utf8_capitalize(spans["kind"].cast(pa.string())),
        "attr.status_code": pc.utf8_capitalize(spans["status"].cast(pa.string())),
        _POD: spans["pod"].cast(pa.string()),
        "attr.http.response.status_code": spans["status_code"].cast(pa.uint16()),
    }
    return pa.table(columns | _attributes(spans["attributes"], columns))


def _rcabench_logs(logs: pa.Table) -> pa.Table:
    columns = {
        "time": logs["time"].cast(_CLOCK),
        "trace_id": pc.fill_null(logs["trace_id"], ""),
        "span_id": pc.fill_null(logs["span_id"], ""),
        "service_name": logs["service"].cast(pa.string()),
        "level": pc.utf8_upper(logs["level"].cast(pa.string())),
        "message": logs["message"],
        _POD: logs["pod"].cast(pa.string()),
        _CONTAINER: logs["container"].cast(pa.string()),
    }
    return pa.table(columns)


def _attributes(texts: pa.ChunkedArray, columns: Container[str]) -> dict[str, pa.Array]:
    """Return a text column per key of JSON objects, except for existing columns; distinct objects are parsed once."""
    column = texts.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], pa.string())
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    maps = [json.loads(text) for text in column.dictionary.to_pylist()]
    codes = column.indices.to_numpy(zero_copy_only=False)
    attributes = {}
    for key in sorted({key for content in maps for key in content}):
        values = [content.get(key) for content in maps]
        words = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
        if f"attr.{key}" not in columns:
            attributes[f"attr.{key}"] = pa.array(words, pa.string()).take(pa.array(codes.astype(np.int64)))
    return attributes


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
