"""Telemetry as OpenMetrics text and as OTLP JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from faultset.core.times import SECOND_NS
from faultset.datasets.exports.exporter import ExportLayout
from faultset.datasets.format.episodes import table_file
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.recorded_tables import read_table
from faultset.datasets.views import EpisodeView

_KEYS = ["service", "pod", "container", "labels"]


class OpenMetricsExport(ExportLayout):
    """`<episode>.om`.

    Counters and gauges keep their types. Buckets, sums and counts of histograms have the type unknown, because a
    recording may lack buckets that readers of histograms require. Recordings have no exemplars.
    """

    def unavailable_reason(self, episode: str) -> str | None:
        """Refuse an episode without metrics."""
        if not self.dataset.files[episode].get(table_file("metrics")):
            return "OpenMetrics needs metrics, but the episode has none"
        return None

    def write(self, episode: str) -> None:
        """Write the samples of an episode, sorted by family and series."""
        table = self.dataset.view(episode).table("metrics").unify_dictionaries()
        (self.folder / f"{episode}.om").write_text(openmetrics_text(table), encoding="utf-8")


def openmetrics_text(metrics: pa.Table) -> str:
    """Return the samples of a metrics table as OpenMetrics text; of samples at the same time, the first is used."""
    columns = {name: metrics[name].cast(pa.string()).fill_null("").to_pandas() for name in ("metric", "kind", *_KEYS)}
    frame = pd.DataFrame(columns)
    frame["time"] = metrics["time"].cast(pa.int64()).to_numpy()
    frame["value"] = metrics["value"].to_numpy()
    frame = frame.sort_values(["metric", *_KEYS, "time"], kind="stable")
    frame = frame.drop_duplicates(["metric", *_KEYS, "time"])
    series = frame.groupby(["metric", *_KEYS], sort=False).ngroup().to_numpy()
    first = np.flatnonzero(np.diff(series, prepend=-1))
    heads = [_series(*row) for row in frame[["metric", *_KEYS]].iloc[first].itertuples(index=False)]
    times = frame["time"].to_numpy()
    stamps = [f"{second}.{rest:09d}" for second, rest in zip(times // SECOND_NS, times % SECOND_NS, strict=True)]
    values = [_number(value) for value in frame["value"].tolist()]
    lines = np.array([f"{heads[n]} {value} {stamp}" for n, value, stamp in zip(series, values, stamps, strict=True)])
    names = frame["metric"].to_numpy()
    starts = np.flatnonzero(np.concatenate([[True], names[1:] != names[:-1]])) if len(names) else np.zeros(0, int)
    text = []
    for start, end in zip(starts, [*starts[1:], len(names)], strict=True):
        text.append(_type_line(str(names[start]), str(frame["kind"].iloc[start])))
        text += lines[start:end].tolist()
    return "\n".join([*text, "# EOF"]) + "\n"


def _type_line(metric: str, kind: str) -> str:
    if kind == "counter" and metric.endswith("_total"):
        return f"# TYPE {metric.removesuffix('_total')} counter"
    return f"# TYPE {metric} {'gauge' if kind == 'gauge' else 'unknown'}"


def _series(metric: str, service: str, pod: str, container: str, labels: str) -> str:
    columns = {"service": service, "pod": pod, "container": container}
    pairs = {name: value for name, value in columns.items() if value}
    for name, value in json.loads(labels or "{}").items():
        pairs[f"label_{name}" if name in columns else name] = value if isinstance(value, str) else json.dumps(value)
    inside = ",".join(f'{name}="{_escape(value)}"' for name, value in pairs.items())
    return f"{metric}{{{inside}}}" if inside else metric


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if np.isfinite(value):
        return repr(value)
    return "NaN" if np.isnan(value) else "+Inf" if value > 0 else "-Inf"


_KINDS = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
_STATUS = {"unset": 0, "ok": 1, "error": 2}
_SEVERITY = {"trace": 1, "debug": 5, "info": 9, "warning": 13, "error": 17, "fatal": 21}
_SCOPE = {"name": "faultset"}
_REQUEST_ROWS = 1_000


class OTLPExport(ExportLayout):
    """`<episode>/traces.jsonl` and `<episode>/logs.jsonl`; for metrics, use OpenMetrics."""

    def unavailable_reason(self, episode: str) -> str | None:
        """Refuse an episode that has neither spans nor log lines."""
        files = self.dataset.files[episode]
        rows = [files[name].rows for name in (table_file("spans"), table_file("logs")) if name in files]
        return None if any(rows) else "OTLP in JSON needs spans or log lines, but the episode has none"

    def write(self, episode: str) -> None:
        """Write an episode."""
        folder = self.folder / episode
        folder.mkdir()
        view = self.dataset.view(episode)
        for name, lines in (("traces", _traces(view)), ("logs", _logs(view))):
            with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
                for line in lines:
                    file.write(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n")


def _batches(view: EpisodeView, table: str) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Yield rows of a service and pod, in the order of time, with the attributes of their resource."""
    content = read_table(view, table, TABLES[table].names)
    times = content["time"].cast(pa.int64())
    content = content.set_column(content.schema.get_field_index("time"), "time", times).sort_by("time")
    for start in range(0, len(content), _REQUEST_ROWS):
        groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in content.slice(start, _REQUEST_ROWS).to_pylist():
            groups.setdefault((row.get("reported_service") or row["service"] or "", row["pod"] or ""), []).append(row)
        for (service, pod), rows in groups.items():
            facts = {"service.name": service, "k8s.pod.name": pod, "faultset.service": rows[0]["service"]}
            yield {"attributes": _attributes(facts)}, rows


def _traces(view: EpisodeView) -> Iterator[dict[str, Any]]:
    for resource, rows in _batches(view, "spans"):
        spans = [_span(row) for row in rows]
        yield {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": _SCOPE, "spans": spans}]}]}


def _span(row: dict[str, Any]) -> dict[str, Any]:
    facts = json.loads(row["attributes"]) | {
        "peer.service": row["peer_service"],
        "faultset.status_code": row["status_code"],
    }
    span = {
        "traceId": row["trace_id"],
        "spanId": row["span_id"],
        "name": row["operation"],
        "kind": _KINDS.get(row["kind"], 0),
        "startTimeUnixNano": str(row["time"]),
        "endTimeUnixNano": str(row["time"] + row["duration_ns"]),
        "attributes": _attributes(facts),
        "status": {"code": _STATUS.get(row["status"], 0)},
    }
    return span | ({"parentSpanId": row["parent_span_id"]} if row["parent_span_id"] else {})


def _logs(view: EpisodeView) -> Iterator[dict[str, Any]]:
    for resource, rows in _batches(view, "logs"):
        records = [_record(row) for row in rows]
        yield {"resourceLogs": [{"resource": resource, "scopeLogs": [{"scope": _SCOPE, "logRecords": records}]}]}


def _record(row: dict[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = {
        "timeUnixNano": str(row["time"]),
        "body": {"stringValue": row["message"]},
        "attributes": _attributes({"k8s.container.name": row["container"]}),
    }
    if row["level"] in _SEVERITY:
        record |= {"severityNumber": _SEVERITY[row["level"]], "severityText": row["level"]}
    ids = {"traceId": row["trace_id"], "spanId": row["span_id"]}
    return record | {name: value for name, value in ids.items() if value}


def _attributes(facts: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in facts.items() if value is not None]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": value if isinstance(value, str) else json.dumps(value)}
