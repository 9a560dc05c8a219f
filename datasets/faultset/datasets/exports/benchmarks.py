"""Layouts of benchmarks for root cause analysis: OpenRCA, RCAEval and rcabench."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Container, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from faultset.core.files import parquet_path
from faultset.core.times import SECOND_NS
from faultset.datasets.dataset import Dataset
from faultset.datasets.exports.exporter import ExportLayout, ExportOptions
from faultset.datasets.format.labels import Label, RootCause
from faultset.datasets.imports.columns import empty_to_null, encode_words, pc
from faultset.datasets.imports.formats.openrca_rows import LOCAL, SLOT_NS, TASK_FIELDS
from faultset.datasets.views import EpisodeView


def _write_csv(table: pa.Table, path: Path) -> None:
    """Write a table as CSV with quoted text; create the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = [field.with_type(pa.string()) if pa.types.is_dictionary(field.type) else field for field in table.schema]
    pacsv.write_csv(table.cast(pa.schema(plain)), path)


def _text_column(table: pa.Table, *names: str) -> pa.ChunkedArray:
    """Return a column as text; null cells are taken from the next column."""
    return pc.coalesce(*(table[name].cast(pa.string()) for name in names))


def _find_onset(label: Label) -> int:
    assert label.onset_ns is not None  # `unavailable_reason` refuses episodes without a fault
    return label.onset_ns


class _NeedsFault(ExportLayout):
    title = ""

    def unavailable_reason(self, episode: str) -> str | None:
        fault = self.dataset.label(episode).fault
        return f"{self.title} needs a fault, but the episode has none" if fault is None else None


_QUESTIONS = {
    "time": "root cause occurrence datetime",
    "component": "root cause component",
    "reason": "root cause reason",
}
_SCORING_POINTS = {
    "time": "The {which} root cause occurrence time is within 1 minutes (i.e., <=1min) of {value}",
    "component": "The {which} predicted root cause component is {value}",
    "reason": "The {which} predicted root cause reason is {value}",
}
_LEVELS = {"Node": "node", "Pod": "pod"}
_MILLI = 1_000_000
_MICRO = 1_000


class OpenRCAExport(_NeedsFault):
    """Folders `<app>/<episode>` with `record.csv`, `query.csv` and `telemetry/<day>/{metric,trace,log}`."""

    title = "OpenRCA"

    def write(self, episode: str) -> None:
        """Write a system: its record, its seven queries, and its telemetry by local day."""
        view, label = self.dataset.view(episode), self.dataset.label(episode)
        root = self.folder / view.context.app.replace("/", "-") / episode
        records = _list_faulty(label)
        _write_csv(pa.Table.from_pylist(records), root / "record.csv")
        _write_csv(pa.Table.from_pylist(list(_queries(label, records))), root / "query.csv")
        wide = view.wide(max(1.0, self.options.step_s), self.options.roles)
        for kind, file, clock, table in (
            ("metric", "metric_container", SECOND_NS, _openrca_metrics(wide)),
            ("trace", "trace_span", _MILLI, _openrca_spans(view)),
            ("log", "log_service", SECOND_NS, _openrca_logs(view)),
        ):
            for day, rows in _split_by_day(table):
                moments = pc.divide(rows["time_ns"], clock)
                rows = rows.set_column(rows.schema.get_field_index("time_ns"), "timestamp", moments)
                _write_csv(rows, root / "telemetry" / day / kind / f"{file}.csv")


def _to_local(time_ns: int) -> datetime:
    return datetime.fromtimestamp(time_ns // SECOND_NS, UTC).astimezone(LOCAL)


def _list_faulty(label: Label) -> list[dict[str, Any]]:
    """Return a row per faulty service; the service is the component."""
    onset = _find_onset(label)
    causes = {cause.service: cause for cause in label.root_causes}
    faults = {fault.target: fault.fault for fault in label.faults}
    return [
        {
            "level": _LEVELS.get(cause.kind, "service"),
            "component": service,
            "timestamp": onset / SECOND_NS,
            "datetime": f"{_to_local(onset):%Y-%m-%d %H:%M:%S}",
            "reason": faults.get(service, label.fault),
        }
        for service, cause in causes.items()
    ]


def _queries(label: Label, records: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    onset = _find_onset(label)
    start = onset // SLOT_NS * SLOT_NS
    when = f"{_to_local(start):%B %d, %Y, from %H:%M} to {_to_local(start + SLOT_NS):%H:%M}"
    number = "one failure" if len(records) == 1 else f"failures of {len(records)} components"
    for task, fields in TASK_FIELDS.items():
        answer = " and the ".join(_QUESTIONS[name] for name in fields)
        lines = [
            _SCORING_POINTS[name].format(
                which="only" if len(records) == 1 else f"{position}-th",
                value=record["datetime" if name == "time" else name],
            )
            for position, record in enumerate(records, start=1)
            for name in fields
        ]
        yield {
            "task_index": task,
            "instruction": f"On {when} (UTC+8), the system had {number}. Find the {answer}.",
            "scoring_points": "\n".join(lines) + "\n",
        }


def _openrca_metrics(wide: pd.DataFrame) -> pa.Table:
    times = pd.DatetimeIndex(wide.index).as_unit("ns").asi8
    owners = [str(service) for service, _ in wide.columns]
    names = [str(metric) for _, metric in wide.columns]
    rows = len(times)
    table = pa.table(
        {
            "time_ns": pa.array(np.tile(times, len(names)), pa.int64()),
            "cmdb_id": pa.array(np.repeat(owners, rows).tolist(), pa.string()),
            "kpi_name": pa.array(np.repeat(names, rows).tolist(), pa.string()),
            "value": pa.array(wide.to_numpy(dtype=float).T.reshape(-1), from_pandas=True),
        }
    )
    return table.filter(pc.is_valid(table["value"]))


def _openrca_spans(view: EpisodeView) -> pa.Table:
    spans = view.table("spans")
    protocol = pc.if_else(pc.greater_equal(spans["status_code"], 100), "http", "rpc")
    outcome = pc.if_else(pc.equal(_text_column(spans, "status"), "error"), "error", "ok")
    return pa.table(
        {
            "time_ns": spans["time"].cast(pa.int64()),
            "cmdb_id": _text_column(spans, "service", "reported_service"),
            "span_id": spans["span_id"],
            "trace_id": spans["trace_id"],
            "duration": pc.divide(pc.add(spans["duration_ns"], _MICRO // 2), _MICRO),
            "type": pc.coalesce(protocol, pa.scalar("")),
            "status_code": pc.coalesce(_text_column(spans, "status_code"), outcome),
            "operation_name": _text_column(spans, "operation"),
            "parent_span": pc.coalesce(spans["parent_span_id"], pa.scalar("")),
        }
    )


def _openrca_logs(view: EpisodeView) -> pa.Table:
    logs = view.table("logs")
    return pa.table(
        {
            "log_id": pa.array(np.arange(1, len(logs) + 1)),
            "time_ns": logs["time"].cast(pa.int64()),
            "cmdb_id": _text_column(logs, "service", "pod"),
            "log_name": _text_column(logs, "container"),
            # The layout has no column for levels.
            "value": pc.coalesce(
                pc.binary_join_element_wise(_text_column(logs, "level"), logs["message"], ": "), logs["message"]
            ),
        }
    )


def _split_by_day(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield the folder name and the rows of each local day."""
    offset = LOCAL.utcoffset(None)
    times = table["time_ns"].to_numpy()
    days = (times // SECOND_NS + int(offset.total_seconds())) // 86_400
    for day in np.unique(days):
        yield f"{datetime.fromtimestamp(int(day) * 86_400, UTC):%Y_%m_%d}", table.filter(pa.array(days == day))


_UNKNOWN_ERROR_CODE = 2
"""gRPC's code for unknown errors."""


class RCAEvalExport(_NeedsFault):
    """Cases `<app>_<service>_<fault>_<number>` with metrics.parquet, logs.parquet and traces.parquet."""

    title = "RCAEval"

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None:
        super().__init__(dataset, options, folder)
        self._numbers: Counter[str] = Counter()
        self._index: list[dict[str, Any]] = []

    def unavailable_reason(self, episode: str) -> str | None:
        targets = len(self.dataset.label(episode).targets)
        several = f"a case of RCAEval has one target, but the episode has {targets}"
        return super().unavailable_reason(episode) or (several if targets != 1 else None)

    def write(self, episode: str) -> None:
        """Write a case: metrics on a grid of whole seconds, log lines and spans."""
        view, label = self.dataset.view(episode), self.dataset.label(episode)
        app = _hyphenate(view.context.app)
        service, fault = _hyphenate(label.targets[0]), _hyphenate(str(label.fault))
        stem = f"{app}_{service}_{fault}"
        self._numbers[stem] += 1
        case = f"{stem}_{self._numbers[stem]}"
        folder = self.folder / case
        folder.mkdir()
        frame = view.wide(max(1.0, self.options.step_s), self.options.roles)
        times = pa.array(pd.DatetimeIndex(frame.index).as_unit("ns").asi8 // SECOND_NS)
        names = [f"{_hyphenate(owner)}_{metric}" for owner, metric in frame.columns]
        arrays = [pa.array(frame.iloc[:, number].to_numpy(), from_pandas=True) for number in range(len(names))]
        _write_parquet(pa.table([times, *arrays], names=["time", *names]), folder / "metrics.parquet")
        onset = _find_onset(label) // SECOND_NS
        (folder / "inject_time.txt").write_text(f"{onset}\n")
        logs, spans = _rcaeval_logs(view.table("logs")), _rcaeval_traces(view.table("spans"))
        if len(logs):
            _write_parquet(logs, folder / "logs.parquet")
        if len(spans):
            _write_parquet(spans, folder / "traces.parquet")
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
        _write_parquet(pa.Table.from_pylist(self._index), self.folder / "cases.parquet")


def _hyphenate(name: str) -> str:
    """Return a name without the separators of RCAEval's names."""
    return re.sub(r"[_/\s]+", "-", name)


def _write_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, parquet_path(path), compression="zstd")


def _rcaeval_logs(logs: pa.Table) -> pa.Table:
    rows = {
        "timestamp": logs["time"].cast(pa.int64()),
        "container_name": _text_column(logs, "service", "container"),
        "message": logs["message"],
        "level": _text_column(logs, "level"),
    }
    return pa.table(rows)


def _rcaeval_traces(spans: pa.Table) -> pa.Table:
    starts_ns = spans["time"].cast(pa.int64()).to_numpy()
    status = _text_column(spans, "status")
    code_of_status = pc.case_when(
        pc.make_struct(pc.equal(status, "error"), pc.equal(status, "ok")),
        pa.scalar(float(_UNKNOWN_ERROR_CODE)),
        pa.scalar(0.0),
        pa.scalar(None, pa.float64()),
    )
    rows = {
        "traceID": spans["trace_id"],
        "spanID": spans["span_id"],
        "serviceName": _text_column(spans, "service", "reported_service"),
        "methodName": _text_column(spans, "operation"),
        "operationName": _text_column(spans, "operation"),
        "startTimeMillis": starts_ns // 1_000_000,
        "startTime": starts_ns // 1_000,
        "duration": np.round(spans["duration_ns"].to_numpy() / 1_000).astype(np.int64),
        "statusCode": pc.coalesce(spans["status_code"].cast(pa.float64()), code_of_status),
        "parentSpanID": spans["parent_span_id"],
    }
    return pa.table(rows)


_UTC_TIME = pa.timestamp("ns", tz="UTC")
_POD, _CONTAINER = "attr.k8s.pod.name", "attr.k8s.container.name"
_STATISTIC = r"_(sum|count|bucket)$"


class RCABenchExport(_NeedsFault):
    """`data/<dataset>/<datapack>/` and `meta/<dataset>/`, in the format of converted datapacks."""

    title = "rcabench"

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None:
        super().__init__(dataset, options, folder)
        self._name = re.sub(r"[^A-Za-z0-9_-]+", "-", dataset.root.resolve().name) or "faultset"
        self._data = folder / "data" / self._name
        self._meta = folder / "meta" / self._name
        self._rows: list[dict[str, Any]] = []
        self._data.mkdir(parents=True)
        self._meta.mkdir(parents=True)

    def write(self, episode: str) -> None:
        """Write a datapack, split at the onset."""
        view, label = self.dataset.view(episode), self.dataset.label(episode)
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", f"{view.context.app}-{episode}")
        folder = self._data / name
        folder.mkdir()
        onset = _find_onset(label)
        metrics = view.table("metrics")
        tables = {
            "metrics": _rcabench_samples(metrics, "gauge"),
            "metrics_sum": _rcabench_samples(metrics, "counter"),
            "metrics_histogram": _rcabench_histograms(metrics),
            "traces": _rcabench_traces(view.table("spans")),
            "logs": _rcabench_logs(view.table("logs")),
        }
        for kind, table in tables.items():
            before = pc.less(table["time"].cast(pa.int64()), onset)
            for stage, mask in (("normal", before), ("abnormal", pc.invert(before))):
                _write_parquet(table.filter(mask), folder / f"{stage}_{kind}.parquet")
        files = {
            "env": _rcabench_environment(view.window, onset, view.context.app),
            "injection": _rcabench_injection(name, label),
        }
        for stem, content in files.items():
            (folder / f"{stem}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
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


def _rcabench_environment(view: tuple[int, int], onset: int, app: str) -> dict[str, str]:
    start, end = view[0] // SECOND_NS, -(-view[1] // SECOND_NS)
    onset_s = onset // SECOND_NS
    numbers = {"NORMAL_START": start, "NORMAL_END": onset_s, "ABNORMAL_START": onset_s, "ABNORMAL_END": end}
    return {"NAMESPACE": app, "DB_TIMEZONE": "UTC"} | {name: str(number) for name, number in numbers.items()}


def _names_a_pod(cause: RootCause) -> bool:
    """Return whether a cause names one pod; a Pod with the name of its service means any pod of the service."""
    return cause.kind == "Pod" and cause.name != cause.service


def _rcabench_injection(name: str, label: Label) -> dict[str, Any]:
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


def _rcabench_samples(metrics: pa.Table, kind: str) -> pa.Table:
    rows = metrics.filter(pc.equal(metrics["kind"], kind))
    columns: dict[str, Any] = {
        "time": rows["time"].cast(_UTC_TIME),
        "metric": _text_column(rows, "metric"),
        "value": rows["value"],
        "service_name": _text_column(rows, "service"),
        _POD: _text_column(rows, "pod"),
        _CONTAINER: _text_column(rows, "container"),
    }
    return pa.table(columns | _rcabench_attributes(rows["labels"], columns))


def _rcabench_histograms(metrics: pa.Table) -> pa.Table:
    """Join the count and the sum of each series and time into a row; buckets are left out."""
    keys = ["service", "pod", "container", "labels"]
    tables = []
    for statistic in ("count", "sum"):
        rows = metrics.filter(pc.equal(metrics["kind"], statistic))
        family = pc.replace_substring_regex(_text_column(rows, "metric"), _STATISTIC, "")
        # Joins never match null keys.
        columns = {key: pc.fill_null(rows[key].cast(pa.string()), "") for key in keys}
        columns |= {"time": rows["time"].cast(pa.int64()), "metric": family, statistic: rows["value"]}
        tables.append(pa.table(columns))
    joined = tables[0].join(tables[1], keys=["time", *keys, "metric"], join_type="full outer")
    joined = joined.sort_by([("metric", "ascending"), ("service", "ascending"), ("time", "ascending")])

    nulls = pa.nulls(len(joined), pa.float64())
    content: dict[str, Any] = {
        "time": joined["time"].cast(_UTC_TIME),
        "metric": joined["metric"],
        "service_name": empty_to_null(joined["service"]),
        "count": joined["count"],
        "sum": joined["sum"],
        "min": nulls,
        "max": nulls,
        _POD: empty_to_null(joined["pod"]),
        _CONTAINER: empty_to_null(joined["container"]),
    }
    return pa.table(content | _rcabench_attributes(joined["labels"], content))


def _rcabench_traces(spans: pa.Table) -> pa.Table:
    columns: dict[str, Any] = {
        "time": spans["time"].cast(_UTC_TIME),
        "trace_id": spans["trace_id"],
        "span_id": spans["span_id"],
        "parent_span_id": pc.fill_null(spans["parent_span_id"], ""),
        "service_name": _text_column(spans, "service"),
        "span_name": _text_column(spans, "operation"),
        "duration": spans["duration_ns"].cast(pa.uint64()),
        "attr.span_kind": pc.utf8_capitalize(_text_column(spans, "kind")),
        "attr.status_code": pc.utf8_capitalize(_text_column(spans, "status")),
        _POD: _text_column(spans, "pod"),
        "attr.http.response.status_code": spans["status_code"].cast(pa.uint16()),
    }
    return pa.table(columns | _rcabench_attributes(spans["attributes"], columns))


def _rcabench_logs(logs: pa.Table) -> pa.Table:
    columns = {
        "time": logs["time"].cast(_UTC_TIME),
        "trace_id": pc.fill_null(logs["trace_id"], ""),
        "span_id": pc.fill_null(logs["span_id"], ""),
        "service_name": _text_column(logs, "service"),
        "level": pc.utf8_upper(_text_column(logs, "level")),
        "message": logs["message"],
        _POD: _text_column(logs, "pod"),
        _CONTAINER: _text_column(logs, "container"),
    }
    return pa.table(columns)


def _rcabench_attributes(texts: pa.ChunkedArray, columns: Container[str]) -> dict[str, pa.Array]:
    """Return a text column per key of JSON objects, except for existing columns; distinct objects are parsed once."""
    column = encode_words(texts)
    maps = [json.loads(text) for text in column.dictionary.to_pylist()]
    codes = column.indices.to_numpy(zero_copy_only=False)
    attributes = {}
    for key in sorted({key for content in maps for key in content}):
        values = [content.get(key) for content in maps]
        words = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
        if f"attr.{key}" not in columns:
            attributes[f"attr.{key}"] = pa.array(words, pa.string()).take(pa.array(codes.astype(np.int64)))
    return attributes
