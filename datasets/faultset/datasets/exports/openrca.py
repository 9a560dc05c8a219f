"""The CSV layout of OpenRCA."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv as pacsv

from faultset.core.times import SECOND_NS
from faultset.datasets.exports.exporter import ExportLayout
from faultset.datasets.format.labels import Label
from faultset.datasets.imports.formats.openrca_rows import LOCAL, SLOT_NS, TASK_FIELDS
from faultset.datasets.views import EpisodeView

pc: Any = pyarrow.compute  # type checkers do not see its functions


def write_csv(table: pa.Table, path: Path) -> None:
    """Write a table as CSV with quoted text; create the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = [field.with_type(pa.string()) if pa.types.is_dictionary(field.type) else field for field in table.schema]
    pacsv.write_csv(table.cast(pa.schema(plain)), path)


def lines_with_level(logs: pa.Table) -> pa.ChunkedArray:
    """Return messages with their level as a prefix, for layouts without a column for levels.

    Parameters
    ----------
    logs
        Rows of the table `logs` with the columns `level` and `message`.
    """
    level = logs["level"].cast(pa.string())
    return pc.coalesce(pc.binary_join_element_wise(level, logs["message"], ": "), logs["message"])


def owning_services(spans: pa.Table) -> pa.ChunkedArray:
    """Return the service of each span, or the reported service if no workload owns it."""
    return pc.coalesce(spans["service"].cast(pa.string()), spans["reported_service"].cast(pa.string()))


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


class OpenRCAExport(ExportLayout):
    """Folders `<app>/<episode>` with `record.csv`, `query.csv` and `telemetry/<day>/{metric,trace,log}`."""

    def unavailable_reason(self, episode: str) -> str | None:
        """Return a reason if the episode has no fault."""
        fault = self.dataset.label(episode).fault
        return "OpenRCA needs a fault, but the episode has none" if fault is None else None

    def write(self, episode: str) -> None:
        """Write a system: its record, its seven queries, and its telemetry by local day."""
        view, label = self.dataset.view(episode), self.dataset.label(episode)
        root = self.folder / view.context.app.replace("/", "-") / episode
        records = _records(label)
        write_csv(pa.Table.from_pylist(records), root / "record.csv")
        write_csv(pa.Table.from_pylist(list(_queries(label, records))), root / "query.csv")
        wide = view.wide(max(1.0, self.options.step_s), self.options.roles)
        for kind, file, clock, table in (
            ("metric", "metric_container", SECOND_NS, _metrics(wide)),
            ("trace", "trace_span", _MILLI, _spans(view)),
            ("log", "log_service", SECOND_NS, _openrca_logs(view)),
        ):
            for day, rows in _split_by_day(table):
                moments = pc.divide(rows["time_ns"], clock)
                rows = rows.set_column(rows.schema.get_field_index("time_ns"), "timestamp", moments)
                write_csv(rows, root / "telemetry" / day / kind / f"{file}.csv")


def _to_local(time_ns: int) -> datetime:
    return datetime.fromtimestamp(time_ns // SECOND_NS, UTC).astimezone(LOCAL)


def _records(label: Label) -> list[dict[str, Any]]:
    """Return a row per faulty service; the service is the component."""
    onset = label.onset_ns
    assert onset is not None  # `unavailable_reason` refuses episodes without a fault
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
    onset = label.onset_ns
    assert onset is not None
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


def _metrics(wide: pd.DataFrame) -> pa.Table:
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


def _spans(view: EpisodeView) -> pa.Table:
    spans = view.table("spans")
    protocol = pc.if_else(pc.greater_equal(spans["status_code"], 100), "http", "rpc")
    outcome = pc.if_else(pc.equal(spans["status"].cast(pa.string()), "error"), "error", "ok")
    return pa.table(
        {
            "time_ns": spans["time"].cast(pa.int64()),
            "cmdb_id": owning_services(spans),
            "span_id": spans["span_id"],
            "trace_id": spans["trace_id"],
            "duration": pc.divide(pc.add(spans["duration_ns"], _MICRO // 2), _MICRO),
            "type": pc.coalesce(protocol, pa.scalar("")),
            "status_code": pc.coalesce(spans["status_code"].cast(pa.string()), outcome),
            "operation_name": spans["operation"].cast(pa.string()),
            "parent_span": pc.coalesce(spans["parent_span_id"], pa.scalar("")),
        }
    )


def _openrca_logs(view: EpisodeView) -> pa.Table:
    logs = view.table("logs")
    return pa.table(
        {
            "log_id": pa.array(np.arange(1, len(logs) + 1)),
            "time_ns": logs["time"].cast(pa.int64()),
            "cmdb_id": pc.coalesce(logs["service"].cast(pa.string()), logs["pod"].cast(pa.string())),
            "log_name": logs["container"].cast(pa.string()),
            "value": lines_with_level(logs),
        }
    )


def _split_by_day(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield the folder name and the rows of each local day."""
    offset = LOCAL.utcoffset(None)
    times = table["time_ns"].to_numpy()
    days = (times // SECOND_NS + int(offset.total_seconds())) // 86_400
    for day in np.unique(days):
        yield f"{datetime.fromtimestamp(int(day) * 86_400, UTC):%Y_%m_%d}", table.filter(pa.array(days == day))
