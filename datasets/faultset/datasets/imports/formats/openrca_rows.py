"""Systems of OpenRCA's data, their records and rows.

Records and day folders are in the local time of the source, eight hours ahead of UTC; telemetry has epoch numbers.
OpenRCA's questions are about half hours, so all records of a half hour form one case.

Files are recognised by their columns, not by their system. Pitfalls of the data: files mix seconds and milliseconds;
no file states whether durations are in milliseconds or microseconds; parents of roots are `None`; headers repeat within
a file.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv

from faultset.core.errors import DataError
from faultset.core.files import canonical_json
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.columns import (
    build_table,
    constant,
    csv_header,
    encode_codes,
    encode_series,
    epoch_ns,
    parse_numbers,
    parsing,
)
from faultset.datasets.imports.contract import build_cause
from faultset.datasets.status_codes import parse_status_code

LOCAL = timezone(timedelta(hours=8))
TASK_FIELDS = {
    "task_1": ("time",),
    "task_2": ("reason",),
    "task_3": ("component",),
    "task_4": ("time", "reason"),
    "task_5": ("time", "component"),
    "task_6": ("component", "reason"),
    "task_7": ("time", "component", "reason"),
}
"""Task -> fields of its answer."""
SLOT_NS = 1800 * SECOND_NS
BEFORE_NS = SLOT_NS
"""Length of the view before the half hour; most of it is the reference."""
AFTER_NS = 600 * SECOND_NS
"""Time of a view after the half hour, for faults at its end."""
_REPLICA = re.compile(r"\d*-\d+$")
_PROTOCOL = re.compile(r"-(grpc|http)$")


@dataclass(frozen=True, kw_only=True)
class Record:
    """A row of `record.csv`."""

    level: str
    component: str
    time_ns: int
    datetime: str
    reason: str

    @property
    def stated_ns(self) -> int | None:
        """The column `datetime`, read as the source's local time; None if unreadable."""
        try:
            moment = datetime.strptime(self.datetime.strip(), "%Y-%m-%d %H:%M:%S").replace(tzinfo=LOCAL)
        except ValueError:
            return None
        return int(moment.timestamp()) * SECOND_NS


@dataclass(frozen=True, kw_only=True)
class System:
    """A system: a folder with records and telemetry."""

    root: Path
    app: str
    records: tuple[Record, ...]

    @property
    def has_pods(self) -> bool:
        """Whether components are pods of services."""
        return self.app.startswith("market")

    def day_folders(self, start_ns: int, end_ns: int) -> list[Path]:
        """Return the existing folders of all local days that a window overlaps."""
        first, last = (_to_local(moment).date() for moment in (start_ns, end_ns - 1))
        days = [first + timedelta(days=step) for step in range((last - first).days + 1)]
        folders = [self.root / "telemetry" / day.strftime("%Y_%m_%d") for day in days]
        return [folder for folder in folders if folder.is_dir()]

    def component_of(self, cmdb_id: str) -> str:
        """Return the candidate for an id.

        Market's ids are pods, pods with their node, services with a protocol or a port, and nodes. A pod's candidate
        is its service.
        """
        if not self.has_pods:
            return cmdb_id
        names = cmdb_id.split(".")
        name = names[1] if len(names) == 2 and names[0].startswith("node-") else names[0]
        if name.startswith("node-"):
            return name
        return _REPLICA.sub("", _PROTOCOL.sub("", name)) or name


def find_systems(root: Path) -> list[System]:
    """Return all systems below a folder, sorted; raise DataError for unreadable records."""
    return [
        System(root=path.parent, app=_get_app(path.parent), records=_read_records(path))
        for path in sorted(root.rglob("record.csv"))
        if (path.parent / "telemetry").is_dir()
    ]


def slots(system: System) -> Iterator[tuple[int, tuple[Record, ...]]]:
    """Yield the start of each half hour with records, and its records in time order."""
    grouped: dict[int, list[Record]] = {}
    for record in system.records:
        grouped.setdefault(record.time_ns // SLOT_NS * SLOT_NS, []).append(record)
    for start in sorted(grouped):
        yield start, tuple(sorted(grouped[start], key=lambda record: (record.time_ns, record.component)))


def slot_name(start_ns: int) -> str:
    """Return the start of a half hour in the source's local time.

    >>> slot_name(1614841200000000000)
    '2021-03-04T15:00'
    """
    return _to_local(start_ns).strftime("%Y-%m-%dT%H:%M")


def label_of(system: System, records: Sequence[Record]) -> dict[str, Any]:
    targets = [system.component_of(record.component) for record in records]
    reasons = " + ".join(sorted({record.reason for record in records}))
    fields = ("component", "datetime", "level", "reason")
    return {
        "fault": reasons,
        "targets": list(dict.fromkeys(targets)),
        "root_causes": [
            build_cause(target, kind=record.level.capitalize(), name=record.component)
            for target, record in zip(targets, records, strict=True)
        ],
        "faults": [
            {
                "fault": record.reason,
                "target": target,
                "system_level": record.level,
                "fault_type": record.reason,
                "parameters": {},
                "inject_start": record.time_ns,
            }
            for target, record in zip(targets, records, strict=True)
        ],
        "system_level": " + ".join(sorted({record.level for record in records})),
        "fault_type": reasons,
        "inject_start": records[0].time_ns,
        "parameters": {"records": [{name: getattr(record, name) for name in fields} for record in records]},
    }


def _to_local(time_ns: int) -> datetime:
    return datetime.fromtimestamp(time_ns // SECOND_NS, tz=UTC).astimezone(LOCAL)


def _get_app(folder: Path) -> str:
    name = folder.name.lower()
    return f"market-{name}" if name.startswith("cloudbed") else name


def _read_records(path: Path) -> tuple[Record, ...]:
    with parsing(path, "be a list of records"):
        table = pd.read_csv(path, dtype=str, encoding="utf-8-sig", keep_default_na=False)
        rows = table[table["timestamp"] != "timestamp"].drop_duplicates()
        times = epoch_ns(rows["timestamp"].astype(float).to_numpy())
        # Telecom's records have no level; they are about containers, hosts or databases.
        levels = rows["level"] if "level" in rows else ["component"] * len(rows)
        columns = (rows[name] for name in ("component", "datetime", "reason"))
        return tuple(
            Record(level=level, component=component.strip(), time_ns=time, datetime=stated, reason=reason.strip())
            for level, time, component, stated, reason in zip(levels, times.tolist(), *columns, strict=True)
        )


MILLI, MICRO = 1_000_000, 1_000
TIMES = ("timestamp", "startTime")
_BLOCK = 16 << 20
_NO_PARENT = {"", "None", "none", "null", "0", "-1"}
_OPERATIONS = ("operation_name", "serviceName", "dsName")
_SPAN_NAMES = {
    "trace": ("trace_id", "traceId"),
    "span": ("span_id", "id"),
    "parent": ("parent_id", "parent_span", "pid"),
    "duration": ("duration", "elapsedTime"),
    "component": ("cmdb_id",),
    "time": TIMES,
}
"""Our name -> the column names of the source; the first one in a file is used."""
Window = tuple[int, int]


def metric_rows(system: System, folders: Sequence[Path], window: Window) -> Iterator[pa.Table]:
    for path in telemetry_files(folders, "metric"):
        header = csv_header(path)
        long = "value" in header and "cmdb_id" in header
        for frame in _pieces(path, header, window):
            yield _long_metrics(system, frame, path) if long else _wide_metrics(system, frame, path)


def span_rows(system: System, folders: Sequence[Path], window: Window) -> Iterator[pa.Table]:
    """Yield the distinct rows of the table `spans`."""
    seen = np.zeros(0, dtype=np.uint64)
    for path in telemetry_files(folders, "trace"):
        header = csv_header(path)
        names = span_names(header)
        missing = sorted(ours for ours in ("trace", "span", "duration", "component", "time") if names[ours] is None)
        if missing:
            raise DataError(f"{path} has no column for {', '.join(missing)}; restore the file")
        for frame in _pieces(path, header, window):
            codes = pd.util.hash_pandas_object(frame[[names["trace"], names["span"]]], index=False).to_numpy()
            is_new = ~np.isin(codes, seen) & ~pd.Series(codes).duplicated().to_numpy()
            seen = np.union1d(seen, codes)
            yield _span_table(system, frame[is_new], names)


def log_rows(system: System, folders: Sequence[Path], window: Window) -> Iterator[pa.Table]:
    """Yield the table `logs`."""
    for path in telemetry_files(folders, "log"):
        header = csv_header(path)
        if not {"timestamp", "cmdb_id", "value"} <= set(header):
            raise DataError(f"{path} has no columns timestamp, cmdb_id and value; restore the file")
        for frame in _pieces(path, header, window, newlines=True):
            ids = frame["cmdb_id"].astype(str)
            yield build_table(
                "logs",
                {
                    "time": pa.array(frame["time_ns"]),
                    "service": _encode_components(system, ids),
                    "pod": encode_series(ids),
                    "container": encode_series(frame.get("log_name", ids).astype(str)),
                    "message": pa.array(frame["value"], pa.string()),
                },
            )


def duration_factor(names: dict[str, str | None]) -> int:
    """Return the nanoseconds per unit of a trace file's durations.

    Files with the column `parent_span`, as Market has, use microseconds; the others use milliseconds.
    """
    return MICRO if names["parent"] == "parent_span" else MILLI


def span_names(header: Sequence[str]) -> dict[str, str | None]:
    """Return the column of a trace file, or None, for each of our names."""
    return {ours: next((name for name in theirs if name in header), None) for ours, theirs in _SPAN_NAMES.items()}


def telemetry_files(folders: Sequence[Path], kind: str) -> list[Path]:
    """Return the non-empty files of a kind (`metric`, `trace`, `log`)."""
    return [path for folder in folders for path in sorted((folder / kind).glob("*.csv")) if path.stat().st_size]


def _pieces(path: Path, header: Sequence[str], window: Window, *, newlines: bool = False) -> Iterator[pd.DataFrame]:
    """Yield the rows of a file within a window, as text, with their time in `time_ns`."""
    clock = next((name for name in TIMES if name in header), None)
    if clock is None:
        raise DataError(f"{path} has no column {' or '.join(TIMES)}; restore the file")
    try:
        with _ignore_unraisable_errors():
            reader = pacsv.open_csv(
                path,
                read_options=pacsv.ReadOptions(block_size=_BLOCK),
                parse_options=pacsv.ParseOptions(newlines_in_values=newlines, invalid_row_handler=lambda row: "skip"),
                convert_options=pacsv.ConvertOptions(column_types=dict.fromkeys(header, pa.string())),
            )
            for batch in reader:
                stamps = parse_numbers(batch.column(clock).to_pandas())
                valid = np.isfinite(stamps)
                times = np.zeros(len(stamps), dtype=np.int64)
                times[valid] = epoch_ns(stamps[valid])
                inside = valid & (times >= window[0]) & (times < window[1])
                if inside.any():
                    frame = batch.filter(pa.array(inside)).to_pandas()
                    yield frame.assign(time_ns=times[inside])
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} cannot be read ({error}); restore it or leave the case out") from error


@contextmanager
def _ignore_unraisable_errors() -> Iterator[None]:
    """Keep Arrow from printing a traceback for each invalid row that is not UTF-8."""
    before, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    try:
        yield
    finally:
        sys.unraisablehook = before


def _long_metrics(system: System, frame: pd.DataFrame, path: Path) -> pa.Table:
    name = next((column for column in ("kpi_name", "name") if column in frame), None)
    if name is None:
        raise DataError(f"{path} has no column kpi_name or name; restore the file")
    ids = frame["cmdb_id"].astype(str)
    labels = _mesh_labels(ids) if system.has_pods else None
    return _metric_table(system, frame, ids, frame[name].astype(str), frame["value"], labels)


def _wide_metrics(system: System, frame: pd.DataFrame, path: Path) -> pa.Table:
    owner = next((column for column in ("tc", "serviceName", "service") if column in frame), None)
    if owner is None:
        raise DataError(f"{path} needs a column tc, serviceName or service; restore the file")
    numbers = [column for column in frame.columns if column not in (owner, *TIMES, "time_ns")]
    long = frame.melt(id_vars=[owner, "time_ns"], value_vars=numbers)
    return _metric_table(system, long, long[owner].astype(str), long["variable"].astype(str), long["value"])


def _metric_table(
    system: System,
    frame: pd.DataFrame,
    ids: pd.Series,
    metric: pd.Series,
    text: pd.Series,
    labels: pa.Array | None = None,
) -> pa.Table:
    values = parse_numbers(text)
    columns = {
        "time": pa.array(frame["time_ns"]),
        "service": _encode_components(system, ids),
        "pod": encode_series(ids),
        "metric": encode_series(metric),
        "kind": constant("gauge", len(frame)),
        "value": pa.array(np.nan_to_num(values)),
    }
    table = build_table("metrics", columns if labels is None else {**columns, "labels": labels})
    return table.filter(pa.array(np.isfinite(values)))


def _mesh_labels(ids: pd.Series) -> pa.Array:
    """Return labels with the caller and the callee for ids such as `pod.source.caller.callee`; no labels for other
    ids."""
    words, codes = np.unique(ids.to_numpy(dtype=str), return_inverse=True)
    labels = []
    for word in words:
        fields = word.split(".")
        is_call = len(fields) == 4 and fields[1] in ("source", "destination")
        call = {"destination": fields[3], "seen_as": fields[1], "source": fields[2]} if is_call else {}
        labels.append(canonical_json(call))
    return encode_codes(labels, codes.astype(np.int32))


def _span_table(system: System, frame: pd.DataFrame, names: dict[str, str | None]) -> pa.Table:
    def column(ours: str) -> pd.Series:
        name = names[ours]
        return frame[name].astype(str) if name else pd.Series("", index=frame.index)

    ids = column("component")
    parent = column("parent")
    owner = _encode_components(system, ids)
    elapsed = np.nan_to_num(parse_numbers(column("duration")))
    status, code = _read_outcome(frame)
    operation = pd.Series("unnamed", index=frame.index)
    for name in _OPERATIONS:
        if name in frame:
            is_name = frame[name].notna() & ~frame[name].isin(["", "None"])
            operation = operation.mask((operation == "unnamed") & is_name, frame[name])
    kind = frame["callType"].astype(str).str.lower() if "callType" in frame else pd.Series("", index=frame.index)
    return build_table(
        "spans",
        {
            "time": pa.array(frame["time_ns"]),
            "trace_id": pa.array(column("trace"), pa.string()),
            "span_id": pa.array(column("span"), pa.string()),
            "parent_span_id": pa.array(parent.where(~parent.isin(_NO_PARENT)), pa.string(), from_pandas=True),
            "service": owner,
            "reported_service": owner,
            "pod": encode_series(ids),
            "operation": encode_series(operation),
            "kind": encode_series(
                kind.map({"jdbc": "client", "remoteprocess": "client", "local": "internal"}).fillna("server")
            ),
            "duration_ns": pa.array(np.round(elapsed * duration_factor(names)).astype(np.int64)),
            "status": encode_series(status),
            "status_code": pa.array(code, pa.int32(), from_pandas=True),
        },
    )


def _read_outcome(frame: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return the status and the code from `success`, or from `status_code` of gRPC or HTTP."""
    unset = pd.Series("unset", index=frame.index)
    no_code = pd.Series(np.nan, index=frame.index).astype("Int32")
    if "success" in frame:
        success = frame["success"].astype(str).str.lower() == "true"
        return unset.mask(success, "ok").mask(~success, "error"), no_code
    if "status_code" not in frame:
        return unset, no_code
    text = frame["status_code"].astype(str).str.lower()
    codes = {word: None if word == "ok" else parse_status_code(word) for word in text.unique()}
    code = text.map(codes).astype("Int32")
    success = ((code == 0) | ((code >= 100) & (code < 400))).fillna(False) | text.isin(["ok", "unset"])
    is_set = code.notna() | text.isin(["ok", "error"])
    return unset.mask(is_set & success, "ok").mask(is_set & ~success, "error"), code


def _encode_components(system: System, ids: pd.Series) -> pa.DictionaryArray:
    return encode_series(ids.map({name: system.component_of(name) for name in ids.unique()}))
