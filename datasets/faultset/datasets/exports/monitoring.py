"""Layouts in the formats of monitoring systems: OTLP JSON lines and OpenMetrics text."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from faultset.core.times import SECOND_NS
from faultset.datasets.exports.exporter import ExportLayout
from faultset.datasets.format.episodes import table_file
from faultset.datasets.format.schemas import TABLES, time_column
from faultset.datasets.metrics.roles import builtin_catalogue
from faultset.datasets.metrics.series import sample_text, series_labels
from faultset.datasets.telemetry_formats.otlp_json import (
    EVENT_NAME,
    OUR_EVENTS,
    OUR_FIELDS,
    OUR_SERVICE,
    SEVERITY_NUMBERS,
    SPAN_KIND_NUMBERS,
    STATUS_NUMBERS,
    encode_attributes,
)
from faultset.datasets.telemetry_formats.prometheus import KIND_MARK
from faultset.datasets.views import EpisodeView, read_table

_SCOPE = {"name": "faultset"}
_REQUEST_ROWS = 1_000
_FILES = {name: name for name in TABLES} | {"spans": "traces"}
"""Table -> name of its file."""


class OTLPExport(ExportLayout):
    """`<episode>/metrics.jsonl`, `traces.jsonl` and `logs.jsonl`; events, objects and requests as log records.

    Parts of histograms are separate sums, because a recording may lack buckets that a histogram requires. The metadata
    of a metric contains its kind, and its role if the metric is not in the built-in catalogue.
    """

    def unavailable_reason(self, episode: str) -> str | None:
        files = self.dataset.files[episode]
        rows = [files[table_file(table)].rows for table in _FILES if table_file(table) in files]
        return None if any(rows) else "OTLP needs telemetry, but the episode has none"

    def write(self, episode: str) -> None:
        """Write an episode; tables without rows have no file."""
        folder = self.folder / episode
        folder.mkdir()
        view = self.dataset.view(episode)
        for table, name in _FILES.items():
            if not self.dataset.files[episode][table_file(table)].rows:
                continue
            with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
                for line in _lines(view, table):
                    file.write(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n")


def _lines(view: EpisodeView, table: str) -> Iterator[dict[str, Any]]:
    roles = {row["metric"]: dict(row) for row in view.context.metric_roles}
    for resource, rows in _batches(view, table):
        match table:
            case "metrics":
                items = {"scope": _SCOPE, "metrics": list(_build_metrics(rows, roles))}
                yield {"resourceMetrics": [{"resource": resource, "scopeMetrics": [items]}]}
            case "spans":
                items = {"scope": _SCOPE, "spans": [_build_span(row) for row in rows]}
                yield {"resourceSpans": [{"resource": resource, "scopeSpans": [items]}]}
            case _:
                write = {"logs": _build_log_record, "events": _build_event_record}.get(table)
                records = [write(row) if write else _build_other_record(row, table) for row in rows]
                scope = {"scope": _SCOPE, "logRecords": records}
                yield {"resourceLogs": [{"resource": resource, "scopeLogs": [scope]}]}


def _batches(view: EpisodeView, table: str) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Divide the rows, in time order, into batches of 1,000; yield each resource of a batch with its rows."""
    content = read_table(view, table, TABLES[table].names)
    for name in content.column_names:
        if name == time_column(table) or name == "sent":
            content = content.set_column(content.column_names.index(name), name, content[name].cast("int64"))
    times = content[time_column(table)].to_numpy()
    content = content.take(pa.array(np.argsort(times, kind="stable")))
    for start in range(0, len(content), _REQUEST_ROWS):
        groups: dict[tuple[str | None, ...], list[dict[str, Any]]] = {}
        for row in content.slice(start, _REQUEST_ROWS).to_pylist():
            names = (row.get("service"), row.get("reported_service"), row.get("pod"), row.get("container"))
            groups.setdefault(names, []).append(row)
        for (service, reported, pod, container), rows in groups.items():
            facts = {
                "service.name": reported if reported is not None else service or "",
                OUR_SERVICE: service or "",
                "k8s.pod.name": pod or None,
                "k8s.container.name": container or None,
            }
            yield {"attributes": encode_attributes(facts)}, rows


def _build_metrics(rows: list[dict[str, Any]], roles: dict[str, dict[str, str]]) -> Iterator[dict[str, Any]]:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        value = row["value"] if math.isfinite(row["value"]) else str(row["value"])
        labels = encode_attributes(json.loads(row["labels"] or "{}"))
        point = {"timeUnixNano": str(row["time"]), "asDouble": value} | ({"attributes": labels} if labels else {})
        groups.setdefault((row["metric"], row["kind"]), []).append(point)
    for (metric, kind), points in groups.items():
        facts: dict[str, Any] = {OUR_FIELDS + "kind": kind, OUR_FIELDS + "role": _find_role(metric, roles)}
        data: dict[str, Any] = {"dataPoints": points}
        if kind != "gauge":
            data |= {"aggregationTemporality": 2, "isMonotonic": True}
        yield {"name": metric, "metadata": encode_attributes(facts), "gauge" if kind == "gauge" else "sum": data}


def _find_role(metric: str, roles: dict[str, dict[str, str]]) -> dict[str, str] | None:
    """Return the catalogue row that an episode declares for a metric, or None."""
    family = metric.rpartition("_")[0] if metric.endswith(("_bucket", "_sum", "_count")) else metric
    row = roles.get(metric) or roles.get(family)
    if row is not None:
        return row
    matching = builtin_catalogue().extended(list(roles.values())).find(metric)
    return vars(matching) if matching is not None and matching not in builtin_catalogue().rows else None


def _build_span(row: dict[str, Any]) -> dict[str, Any]:
    facts = json.loads(row["attributes"]) | {
        "peer.service": row["peer_service"],
        OUR_FIELDS + "status_code": row["status_code"],
    }
    span = {
        "traceId": row["trace_id"],
        "spanId": row["span_id"],
        "name": row["operation"],
        "kind": SPAN_KIND_NUMBERS.get(row["kind"], 0),
        "startTimeUnixNano": str(row["time"]),
        "endTimeUnixNano": str(row["time"] + row["duration_ns"]),
        "attributes": encode_attributes(facts),
        "status": {"code": STATUS_NUMBERS.get(row["status"], 0)},
    }
    return span | ({"parentSpanId": row["parent_span_id"]} if row["parent_span_id"] else {})


def _build_log_record(row: dict[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = {"timeUnixNano": str(row["time"]), "body": {"stringValue": row["message"]}}
    if row["level"] in SEVERITY_NUMBERS:
        record |= {"severityNumber": SEVERITY_NUMBERS[row["level"]], "severityText": row["level"]}
    ids = {"traceId": row["trace_id"], "spanId": row["span_id"]}
    return record | {name: value for name, value in ids.items() if value}


def _build_event_record(row: dict[str, Any]) -> dict[str, Any]:
    """Return a Kubernetes event as OpenTelemetry's event receiver writes it."""
    facts = {
        "k8s.event.reason": row["reason"],
        "k8s.event.count": row["count"],
        "k8s.object.kind": row["kind"],
        "k8s.object.name": row["name"],
    }
    severity = SEVERITY_NUMBERS["warning" if row["type"] == "Warning" else "info"]
    return {
        "timeUnixNano": str(row["time"]),
        "severityNumber": severity,
        "severityText": row["type"],
        "body": {"stringValue": row["message"]},
        "attributes": encode_attributes(facts),
    }


def _build_other_record(row: dict[str, Any], table: str) -> dict[str, Any]:
    """Return a row of a table for which OpenTelemetry has no convention."""
    time = time_column(table)
    facts = {name: value for name, value in row.items() if name not in (time, "service", "episode")}
    attributes = {EVENT_NAME: OUR_EVENTS + table} | {OUR_FIELDS + name: value for name, value in facts.items()}
    return {"timeUnixNano": str(row[time]), "attributes": encode_attributes(attributes)}


_KEYS = ["service", "pod", "container", "labels"]


class OpenMetricsExport(ExportLayout):
    """`<episode>.om`.

    Gauges keep their type, and so do counters whose names end in `_total`. All other metrics have the type unknown:
    parts of histograms may lack buckets that readers of histograms require. There are no exemplars.
    """

    def unavailable_reason(self, episode: str) -> str | None:
        if not self.dataset.files[episode].get(table_file("metrics")):
            return "OpenMetrics needs metrics, but the episode has none"
        return None

    def write(self, episode: str) -> None:
        """Write the samples of an episode, sorted by family and series."""
        table = self.dataset.view(episode).table("metrics").unify_dictionaries()
        (self.folder / f"{episode}.om").write_text(openmetrics_text(table), encoding="utf-8")


def openmetrics_text(metrics: pa.Table) -> str:
    """Return the samples of a metrics table as OpenMetrics text; samples that repeat a time of their series are
    dropped."""
    columns = {name: metrics[name].cast(pa.string()).fill_null("").to_pandas() for name in ("metric", "kind", *_KEYS)}
    frame = pd.DataFrame(columns)
    frame["time"] = metrics["time"].cast(pa.int64()).to_numpy()
    frame["value"] = metrics["value"].to_numpy()
    frame = frame.sort_values(["metric", *_KEYS, "time"], kind="stable")
    frame = frame.drop_duplicates(["metric", *_KEYS, "time"])
    series = frame.groupby(["metric", *_KEYS], sort=False).ngroup().to_numpy()
    first = np.flatnonzero(np.diff(series, prepend=-1))
    prefixes = [_format_series(*row) for row in frame[["metric", *_KEYS]].iloc[first].itertuples(index=False)]
    times = frame["time"].to_numpy()
    stamps = [
        f"{second}.{fraction:09d}" for second, fraction in zip(times // SECOND_NS, times % SECOND_NS, strict=True)
    ]
    values = [sample_text(value) for value in frame["value"].tolist()]
    lines = np.array([f"{prefixes[n]} {value} {stamp}" for n, value, stamp in zip(series, values, stamps, strict=True)])
    names = frame["metric"].to_numpy()
    starts = np.flatnonzero(np.concatenate([[True], names[1:] != names[:-1]])) if len(names) else np.zeros(0, int)
    text = []
    for start, end in zip(starts, [*starts[1:], len(names)], strict=True):
        text += _head_lines(str(names[start]), str(frame["kind"].iloc[start]))
        text += lines[start:end].tolist()
    return "\n".join([*text, "# EOF"]) + "\n"


def _head_lines(metric: str, kind: str) -> list[str]:
    """Return the lines with type and help of a metric; the help names our kind, which a re-import reads."""
    family = metric.removesuffix("_total") if kind == "counter" else metric
    declared = "counter" if family != metric else "gauge" if kind == "gauge" else "unknown"
    return [f"# HELP {family} {KIND_MARK}{kind}", f"# TYPE {family} {declared}"]


def _format_series(metric: str, service: str, pod: str, container: str, labels: str) -> str:
    pairs = series_labels(service, pod, container, labels)
    inside = ",".join(f'{name}="{_escape(value)}"' for name, value in pairs.items())
    return f"{metric}{{{inside}}}" if inside else metric


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
