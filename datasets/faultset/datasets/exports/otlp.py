"""Spans and log lines as OTLP in JSON, as collectors of OpenTelemetry write files: one request on a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from faultset.datasets.dataset import Dataset
from faultset.datasets.exports.exporter import ExportOptions
from faultset.datasets.format.episodes import table_file
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.recorded_tables import read_table
from faultset.datasets.views import EpisodeView

_KINDS = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
_STATUS = {"unset": 0, "ok": 1, "error": 2}
_SEVERITY = {"trace": 1, "debug": 5, "info": 9, "warning": 13, "error": 17, "fatal": 21}
_SCOPE = {"name": "faultset"}
_MANY = 1_000
"""Rows in a request."""


class OTLPExport:
    """`<episode>/traces.jsonl` and `<episode>/logs.jsonl`. Metrics are another export's: see OpenMetrics."""

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None:
        self._dataset = dataset
        self._folder = folder

    def unavailable_reason(self, episode: str) -> str | None:
        """Refuse an episode that has neither spans nor log lines."""
        files = self._dataset.files[episode]
        rows = [files[name].rows for name in (table_file("spans"), table_file("logs")) if name in files]
        return None if any(rows) else "OTLP in JSON has no place for an episode without spans and log lines"

    def write(self, episode: str) -> None:
        """Write one episode."""
        folder = self._folder / episode
        folder.mkdir()
        view = self._dataset.view(episode)
        for name, lines in (("traces", _traces(view)), ("logs", _logs(view))):
            with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
                for line in lines:
                    file.write(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n")

    def finish(self) -> None:
        """Do nothing: every episode stands for itself."""


def _batches(view: EpisodeView, table: str) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Yield rows of one service and pod with the attributes of their resource, in the order of time."""
    found = read_table(view, table, TABLES[table].names)
    times = found["time"].cast(pa.int64())
    found = found.set_column(found.schema.get_field_index("time"), "time", times).sort_by("time")
    for start in range(0, len(found), _MANY):
        groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in found.slice(start, _MANY).to_pylist():
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
