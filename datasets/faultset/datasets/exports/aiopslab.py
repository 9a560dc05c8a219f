"""The layout of AIOpsLab's observer: CSV files of metrics, traces and logs, with the label beside them."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from faultset.core.times import SECOND_NS
from faultset.datasets.dataset import Dataset
from faultset.datasets.exports.csv_files import lines_with_level, services_of, write_csv
from faultset.datasets.exports.exporter import ExportOptions
from faultset.datasets.format.labels import Label
from faultset.datasets.imports.formats.aiopslab import LABEL_FILE
from faultset.datasets.kubectl.pod_names import workload_of_pod

pc: Any = pyarrow.compute
# Its functions are made at import, where type checkers do not see them.

_INSTANCE = "recording:10250"
"""Stands where the observer names the scraped node, which no recording holds."""
_HELD_LABELS = frozenset({"cpu", "interface"})
_MICRO = 1_000


class AIOpsLabExport:
    """Folders `<episode>/telemetry_data_<time>` with `metric`, `trace`, `log` and `label.json`."""

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None:
        self._dataset = dataset
        self._folder = folder

    def unavailable_reason(self, episode: str) -> str | None:
        """Refuse what AIOpsLab has no place for: services without pods and spans, and several faults."""
        if len(self._dataset.label(episode).faults) > 1:
            return "a problem of AIOpsLab has one fault, and the episode has several"
        view = self._dataset.view(episode)
        sampled = _words(view.table("metrics", ["pod"])["pod"])
        if sampled == {None}:
            return "AIOpsLab has no place for metrics without pods"
        pods = sampled | _words(view.table("logs", ["pod"])["pod"])
        named: set[str | None] = {workload_of_pod(pod) for pod in pods if pod is not None}
        named |= _words(services_of(view.table("spans", ["service", "reported_service"])))
        unnamed = [target for target in self._dataset.label(episode).targets if target not in named]
        return "AIOpsLab has no place for a target that no pod or span is named after" if unnamed else None

    def write(self, episode: str) -> None:
        """Write what the observer would have written at the end of an episode, and its label."""
        view, label = self._dataset.view(episode), self._dataset.label(episode)
        seconds = view.window[1] // SECOND_NS
        stamp = f"{datetime.fromtimestamp(seconds, UTC):%Y%m%d_%H%M%S}"
        folder = self._folder / episode / f"telemetry_data_{stamp}"
        _write_metrics(view.table("metrics"), folder / "metric" / f"metric_{stamp}" / "container")
        write_csv(_traces(view.table("spans")), folder / "trace" / f"traces_{seconds}.csv")
        write_csv(_logs(view.table("logs"), view.context.app), folder / "log" / f"log_{seconds}.csv")
        text = json.dumps(_label(label), indent=1, sort_keys=True) + "\n"
        (folder / LABEL_FILE).write_text(text, encoding="utf-8")

    def finish(self) -> None:
        """Write nothing: no file is about all exports."""


def _words(column: pa.ChunkedArray) -> set[str | None]:
    return set(pc.unique(column.cast(pa.string())).to_pylist())


def _write_metrics(metrics: pa.Table, folder: Path) -> None:
    """Write a file for each metric whose series a pod and an interface tell apart."""
    words = pc.unique(metrics["labels"].cast(pa.string())).to_pylist()
    read = {word: json.loads(word) for word in words}
    held = pa.array([word for word, labels in read.items() if set(labels) <= _HELD_LABELS], pa.string())
    inside = pc.and_(pc.is_valid(metrics["pod"]), pc.is_in(metrics["labels"].cast(pa.string()), held))
    rows = metrics.filter(inside)
    names, labels = rows["metric"].cast(pa.string()), rows["labels"].cast(pa.string())
    interfaces = [read[word].get("interface") for word in words]
    interface = pa.array(interfaces, pa.string()).take(pc.index_in(labels, pa.array(words, pa.string())))
    table = pa.table(
        {
            "timestamp": pc.divide(rows["time"].cast(pa.int64()), SECOND_NS),
            "cmdb_id": pc.binary_join_element_wise(_INSTANCE, rows["pod"].cast(pa.string()), "."),
            "kpi_name": pc.coalesce(pc.binary_join_element_wise(names, interface, "."), names),
            "value": rows["value"],
        }
    )
    for metric in pc.unique(names).to_pylist():
        file = re.sub(r"[^A-Za-z0-9_:.-]+", "_", metric)
        write_csv(table.filter(pc.equal(names, metric)), folder / f"kpi_{file}.csv")


def _traces(spans: pa.Table) -> pa.Table:
    return pa.table(
        {
            "trace_id": spans["trace_id"],
            "span_id": spans["span_id"],
            "parent_span": pc.coalesce(spans["parent_span_id"], pa.scalar("ROOT")),
            "service_name": services_of(spans),
            "operation_name": spans["operation"].cast(pa.string()),
            "start_time": pc.divide(spans["time"].cast(pa.int64()), _MICRO),
            "duration": pc.divide(pc.add(spans["duration_ns"], _MICRO // 2), _MICRO),
            "has_error": pc.if_else(pc.equal(spans["status"].cast(pa.string()), "error"), "True", "False"),
            "response": pc.coalesce(spans["status_code"].cast(pa.string()), pa.scalar("Unknown")),
        }
    )


def _logs(logs: pa.Table, app: str) -> pa.Table:
    numbers = pa.array(np.arange(len(logs)))
    times = logs["time"].cast(pa.int64())
    return pa.table(
        {
            "": numbers,
            "log_id": numbers.cast(pa.string()),
            "timestamp": pc.divide(times.cast(pa.float64(), safe=False), float(SECOND_NS)),
            "date": pc.strftime(times.cast(pa.timestamp("ns", tz="UTC")), "%Y-%m-%dT%H:%M:%SZ"),
            "pod_name": logs["pod"].cast(pa.string()),
            "container_name": logs["container"].cast(pa.string()),
            "namespace": pa.array([app] * len(logs), pa.string()),
            "node_name": pa.array([""] * len(logs), pa.string()),
            "message": lines_with_level(logs),
        }
    )


def _label(label: Label) -> dict[str, Any]:
    if label.fault is None:
        return {"fault": None}
    assert label.onset_ns is not None
    moment = datetime.fromtimestamp(label.onset_ns // SECOND_NS, UTC)
    told: dict[str, Any] = {
        "fault": label.fault,
        "targets": list(label.targets),
        "inject_time": f"{moment:%Y-%m-%dT%H:%M:%S}.{label.onset_ns % SECOND_NS // 1_000_000:03d}+00:00",
        "system_level": label.system_level,
        "fault_type": label.fault_type,
        "metric": next((cause.metric for cause in label.root_causes if cause.metric), None),
    }
    return {name: value for name, value in told.items() if value is not None}
