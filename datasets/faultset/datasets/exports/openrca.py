"""OpenRCA's layout: a folder with records, queries and days of telemetry for each episode.

Episodes overlap in time, and OpenRCA knows components by their names only: in one folder their telemetry would mix.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute

from faultset.core.times import SECOND_NS
from faultset.datasets.dataset import Dataset
from faultset.datasets.exports.csv_files import lines_with_level, services_of, write_csv
from faultset.datasets.exports.exporter import ExportOptions
from faultset.datasets.format.labels import Label
from faultset.datasets.imports.formats.openrca_rows import LOCAL, SLOT_NS
from faultset.datasets.views import EpisodeView

pc: Any = pyarrow.compute
# Its functions are made at import, where type checkers do not see them.

TASKS = {
    "task_1": ("time",),
    "task_2": ("reason",),
    "task_3": ("component",),
    "task_4": ("time", "reason"),
    "task_5": ("time", "component"),
    "task_6": ("component", "reason"),
    "task_7": ("time", "component", "reason"),
}
"""Name of a task -> what it asks for."""
_ASKED = {
    "time": "root cause occurrence datetime",
    "component": "root cause component",
    "reason": "root cause reason",
}
_SCORED = {
    "time": "The {which} root cause occurrence time is within 1 minutes (i.e., <=1min) of {value}",
    "component": "The {which} predicted root cause component is {value}",
    "reason": "The {which} predicted root cause reason is {value}",
}
_LEVELS = {"Node": "node", "Pod": "pod"}
_MILLI, _MICRO = 1_000_000, 1_000


class OpenRCAExport:
    """Folders `<app>/<episode>` with `record.csv`, `query.csv` and `telemetry/<day>/{metric,trace,log}`."""

    def __init__(self, dataset: Dataset, options: ExportOptions, folder: Path) -> None:
        self._dataset = dataset
        self._options = options
        self._folder = folder

    def unavailable_reason(self, episode: str) -> str | None:
        """Refuse what OpenRCA has no place for: episodes without a fault."""
        fault = self._dataset.label(episode).fault
        return "OpenRCA has no place for an episode without a fault" if fault is None else None

    def write(self, episode: str) -> None:
        """Write one system: its record, its seven queries, and its telemetry by local days."""
        view, label = self._dataset.view(episode), self._dataset.label(episode)
        root = self._folder / view.context.app.replace("/", "-") / episode
        records = _records(label)
        write_csv(pa.Table.from_pylist(records), root / "record.csv")
        write_csv(pa.Table.from_pylist(list(_queries(label, records))), root / "query.csv")
        wide = view.wide(max(1.0, self._options.step_s), self._options.roles)
        for kind, file, clock, table in (
            ("metric", "metric_container", SECOND_NS, _metrics(wide)),
            ("trace", "trace_span", _MILLI, _spans(view)),
            ("log", "log_service", SECOND_NS, _logs(view)),
        ):
            for day, rows in _days(table):
                moments = pc.divide(rows["time_ns"], clock)
                rows = rows.set_column(rows.schema.get_field_index("time_ns"), "timestamp", moments)
                write_csv(rows, root / "telemetry" / day / kind / f"{file}.csv")

    def finish(self) -> None:
        """Write nothing: no file is about all systems."""


def _local(time_ns: int) -> datetime:
    return datetime.fromtimestamp(time_ns // SECOND_NS, UTC).astimezone(LOCAL)


def _records(label: Label) -> list[dict[str, Any]]:
    """Return a row for each service at fault; components are services."""
    onset = label.onset_ns
    assert onset is not None  # an episode without a fault is left out
    causes = {cause.service: cause for cause in label.root_causes}
    faults = {one.target: one.fault for one in label.faults}
    return [
        {
            "level": _LEVELS.get(cause.kind, "service"),
            "component": service,
            "timestamp": onset / SECOND_NS,
            "datetime": f"{_local(onset):%Y-%m-%d %H:%M:%S}",
            "reason": faults.get(service, label.fault),
        }
        for service, cause in causes.items()
    ]


def _queries(label: Label, records: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    onset = label.onset_ns
    assert onset is not None
    start = onset // SLOT_NS * SLOT_NS
    when = f"{_local(start):%B %d, %Y, from %H:%M} to {_local(start + SLOT_NS):%H:%M}"
    number = "one failure" if len(records) == 1 else f"failures of {len(records)} components"
    for task, asked in TASKS.items():
        wanted = " and the ".join(_ASKED[name] for name in asked)
        lines = [
            _SCORED[name].format(
                which="only" if len(records) == 1 else f"{place}-th",
                value=record["datetime" if name == "time" else name],
            )
            for place, record in enumerate(records, start=1)
            for name in asked
        ]
        yield {
            "task_index": task,
            "instruction": f"On {when} (UTC+8), the system had {number}. Find the {wanted}.",
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
            "cmdb_id": services_of(spans),
            "span_id": spans["span_id"],
            "trace_id": spans["trace_id"],
            "duration": pc.divide(pc.add(spans["duration_ns"], _MICRO // 2), _MICRO),
            "type": pc.coalesce(protocol, pa.scalar("")),
            "status_code": pc.coalesce(spans["status_code"].cast(pa.string()), outcome),
            "operation_name": spans["operation"].cast(pa.string()),
            "parent_span": pc.coalesce(spans["parent_span_id"], pa.scalar("")),
        }
    )


def _logs(view: EpisodeView) -> pa.Table:
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


def _days(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each local day with the name of its folder."""
    offset = LOCAL.utcoffset(None)
    times = table["time_ns"].to_numpy()
    days = (times // SECOND_NS + int(offset.total_seconds())) // 86_400
    for day in np.unique(days):
        yield f"{datetime.fromtimestamp(int(day) * 86_400, UTC):%Y_%m_%d}", table.filter(pa.array(days == day))
