"""Systems of OpenRCA's data, their records and rows.

Records and day folders are in the local time of the source, eight hours ahead of UTC; telemetry has epoch numbers.
Questions are asked about half hours, so all records of one half hour are one case.

Files are recognised by their columns, not by their system. Traps: seconds in one file and milliseconds in the
next; durations in milliseconds or microseconds that no file states; roots called `None`; headers within the file.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from faultset.core.errors import DataError
from faultset.core.json_text import canonical_json
from faultset.core.times import SECOND_NS
from faultset.datasets.format.schemas import LOGS, METRICS, SPANS, TIME
from faultset.datasets.imports.columns import absent, coded, constant, csv_header, epoch_ns, parse_numbers
from faultset.datasets.status_codes import parse_status_code

if TYPE_CHECKING:
    import pandas as pd

LOCAL = timezone(timedelta(hours=8))
SLOT_NS = 1800 * SECOND_NS
BEFORE_NS = SLOT_NS
"""Time of a view before the half hour; a little less of it is the reference."""
AFTER_NS = 600 * SECOND_NS
"""Time of a view after the half hour, for faults at its end."""

_REPLICA = re.compile(r"\d*-\d+$")
_PROTOCOL = re.compile(r"-(grpc|http)$")


@dataclass(frozen=True, kw_only=True)
class Record:
    """One row of `record.csv`."""

    level: str
    component: str
    time_ns: int
    datetime: str
    reason: str

    @property
    def stated_ns(self) -> int | None:
        """The column `datetime`, read as the source's local time; None when it cannot be read."""
        try:
            moment = datetime.strptime(self.datetime.strip(), "%Y-%m-%d %H:%M:%S").replace(tzinfo=LOCAL)
        except ValueError:
            return None
        return int(moment.timestamp()) * SECOND_NS


@dataclass(frozen=True, kw_only=True)
class System:
    """One system: a folder with records and telemetry."""

    root: Path
    app: str
    records: tuple[Record, ...]

    @property
    def has_pods(self) -> bool:
        """Whether components are pods of services; otherwise they are what they are called."""
        return self.app.startswith("market")

    def day_folders(self, start_ns: int, end_ns: int) -> list[Path]:
        """Return the folders of all local days that a window touches, those that are there."""
        first, last = (_local(moment).date() for moment in (start_ns, end_ns - 1))
        days = [first + timedelta(days=step) for step in range((last - first).days + 1)]
        folders = [self.root / "telemetry" / day.strftime("%Y_%m_%d") for day in days]
        return [folder for folder in folders if folder.is_dir()]

    def component_of(self, cmdb_id: str) -> str:
        """Return the candidate that an id stands for.

        Market's ids are pods, pods with their node, services with a protocol or a port, and nodes; a pod's
        candidate is its service.
        """
        if not self.has_pods:
            return cmdb_id
        parts = cmdb_id.split(".")
        name = parts[1] if len(parts) == 2 and parts[0].startswith("node-") else parts[0]
        if name.startswith("node-"):
            return name
        return _REPLICA.sub("", _PROTOCOL.sub("", name)) or name


def find_systems(root: Path) -> list[System]:
    """Return all systems below a folder, in order; DataError for records that cannot be read."""
    return [
        System(root=path.parent, app=_app(path.parent), records=_records(path))
        for path in sorted(root.rglob("record.csv"))
        if (path.parent / "telemetry").is_dir()
    ]


def slots(system: System) -> Iterator[tuple[int, tuple[Record, ...]]]:
    """Yield each half hour with records, by its start, with the records in order of time."""
    grouped: dict[int, list[Record]] = {}
    for record in system.records:
        grouped.setdefault(record.time_ns // SLOT_NS * SLOT_NS, []).append(record)
    for start in sorted(grouped):
        yield start, tuple(sorted(grouped[start], key=lambda record: (record.time_ns, record.component)))


def slot_name(start_ns: int) -> str:
    """Return a half hour in the source's local time.

    Examples
    --------
    >>> slot_name(1614841200000000000)
    '2021-03-04T15:00'
    """
    return _local(start_ns).strftime("%Y-%m-%dT%H:%M")


def label_of(system: System, records: Sequence[Record]) -> dict[str, Any]:
    """Return the fields of the label: level and reason in the source's own words."""
    targets = list(dict.fromkeys(system.component_of(record.component) for record in records))
    causes: list[Mapping[str, Any]] = [
        {
            "kind": record.level.capitalize(),
            "name": record.component,
            "service": system.component_of(record.component),
            "accepted": [system.component_of(record.component)],
        }
        for record in records
    ]
    return {
        "fault": " + ".join(sorted({record.reason for record in records})),
        "targets": targets,
        "root_causes": causes,
        "faults": [
            {
                "fault": record.reason,
                "target": system.component_of(record.component),
                "system_level": record.level,
                "fault_type": record.reason,
                "parameters": {},
                "inject_start": record.time_ns,
            }
            for record in records
        ],
        "system_level": " + ".join(sorted({record.level for record in records})),
        "fault_type": " + ".join(sorted({record.reason for record in records})),
        "inject_start": records[0].time_ns,
        "parameters": {
            "records": [
                {"component": r.component, "datetime": r.datetime, "level": r.level, "reason": r.reason}
                for r in records
            ]
        },
    }


def _local(time_ns: int) -> datetime:
    return datetime.fromtimestamp(time_ns // SECOND_NS, tz=UTC).astimezone(LOCAL)


def _app(folder: Path) -> str:
    name = folder.name.lower()
    return f"market-{name}" if name.startswith("cloudbed") else name


def _records(path: Path) -> tuple[Record, ...]:
    import pandas as pd

    wanted = ["level", "component", "timestamp", "datetime", "reason"]
    try:
        table = pd.read_csv(path, dtype=str, encoding="utf-8-sig", keep_default_na=False)
        rows = table[table["timestamp"] != "timestamp"].drop_duplicates()
        times = epoch_ns(rows["timestamp"].astype(float).to_numpy())
        # Telecom's records have no level: all of them are of containers, hosts or databases.
        levels = rows["level"] if "level" in rows else ["component"] * len(rows)
        parts = zip(
            levels, times.tolist(), *(rows[name] for name in wanted if name not in ("level", "timestamp")), strict=True
        )
        return tuple(
            Record(level=level, component=component.strip(), time_ns=time, datetime=stated, reason=reason.strip())
            for level, time, component, stated, reason in parts
        )
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path} is not a list of records ({error!r}); restore the file") from error


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
"""Our name -> the source's, the first that a file has."""

Window = tuple[int, int]


def metric_rows(system: System, folders: Sequence[Path], window: Window) -> Iterator[pa.Table]:
    """Yield the table `metrics`, file by file."""
    for path in telemetry_files(folders, "metric"):
        header = csv_header(path)
        long = "value" in header and "cmdb_id" in header
        for frame in _pieces(path, header, window):
            yield _long(system, frame, path) if long else _wide(system, frame, path)


def span_rows(system: System, folders: Sequence[Path], window: Window) -> Iterator[pa.Table]:
    """Yield the table `spans`; a span that is there twice comes once."""
    seen = np.zeros(0, dtype=np.uint64)
    for path in telemetry_files(folders, "trace"):
        header = csv_header(path)
        names = {ours: next((n for n in theirs if n in header), None) for ours, theirs in _SPAN_NAMES.items()}
        missing = sorted(ours for ours in ("trace", "span", "duration", "component", "time") if names[ours] is None)
        if missing:
            raise DataError(f"{path} has no column for {', '.join(missing)}; restore the file")
        for frame in _pieces(path, header, window):
            codes = _hashes(frame, names)
            fresh = ~np.isin(codes, seen) & ~_repeated(codes)
            seen = np.union1d(seen, codes)
            yield _spans(system, frame[fresh], names)


def log_rows(system: System, folders: Sequence[Path], window: Window) -> Iterator[pa.Table]:
    """Yield the table `logs`."""
    for path in telemetry_files(folders, "log"):
        header = csv_header(path)
        if not {"timestamp", "cmdb_id", "value"} <= set(header):
            raise DataError(f"{path} has no columns timestamp, cmdb_id and value; restore the file")
        for frame in _pieces(path, header, window, newlines=True):
            ids = frame["cmdb_id"].astype(str)
            yield _table(
                LOGS,
                {
                    "time": _times(frame),
                    "service": _components(system, ids),
                    "pod": _words(ids),
                    "container": _words(frame.get("log_name", ids).astype(str)),
                    "level": absent(len(frame)),
                    "message": pa.array(frame["value"], pa.string()),
                    "trace_id": pa.nulls(len(frame), pa.string()),
                    "span_id": pa.nulls(len(frame), pa.string()),
                },
            )


def duration_factor(names: dict[str, str | None]) -> int:
    """Return nanoseconds in one unit of a trace file's durations, which no file states.

    Market's are microseconds and have `parent_span`; the others' are milliseconds.
    """
    return MICRO if names["parent"] == "parent_span" else MILLI


def span_names(header: Sequence[str]) -> dict[str, str | None]:
    """Return our name -> the column of a trace file, None where it has none."""
    return {ours: next((n for n in theirs if n in header), None) for ours, theirs in _SPAN_NAMES.items()}


def telemetry_files(folders: Sequence[Path], kind: str) -> list[Path]:
    """Return the files of a kind (`metric`, `trace`, `log`) of some days that are not empty."""
    return [path for folder in folders for path in sorted((folder / kind).glob("*.csv")) if path.stat().st_size]


def _pieces(path: Path, header: Sequence[str], window: Window, *, newlines: bool = False) -> Iterator[pd.DataFrame]:
    """Yield the rows of a file that lie in a window, as text, with their time in `time_ns`."""
    clock = next((name for name in TIMES if name in header), None)
    if clock is None:
        raise DataError(f"{path} has no column {' or '.join(TIMES)}; restore the file")
    try:
        with _silent_about_rows():
            reader = pacsv.open_csv(
                path,
                read_options=pacsv.ReadOptions(block_size=_BLOCK),
                parse_options=pacsv.ParseOptions(newlines_in_values=newlines, invalid_row_handler=_skip),
                convert_options=pacsv.ConvertOptions(column_types=dict.fromkeys(header, pa.string())),
            )
            for batch in reader:
                stamps = parse_numbers(batch.column(clock).to_pandas())
                known = np.isfinite(stamps)
                times = np.zeros(len(stamps), dtype=np.int64)
                times[known] = epoch_ns(stamps[known])
                inside = known & (times >= window[0]) & (times < window[1])
                if inside.any():
                    frame = batch.filter(pa.array(inside)).to_pandas()
                    yield frame.assign(time_ns=times[inside])
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} cannot be read ({error}); restore it or leave the case out") from error


def _skip(_: Any) -> str:
    return "skip"


@contextmanager
def _silent_about_rows() -> Iterator[None]:
    """Keep Arrow from printing a traceback for each invalid row whose text is not UTF-8 either."""
    before, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    try:
        yield
    finally:
        sys.unraisablehook = before


def _long(system: System, frame: pd.DataFrame, path: Path) -> pa.Table:
    name = next((column for column in ("kpi_name", "name") if column in frame), None)
    if name is None:
        raise DataError(f"{path} has no column kpi_name or name; restore the file")
    ids = frame["cmdb_id"].astype(str)
    labels = _mesh_labels(ids) if system.has_pods else constant("{}", len(frame))
    return _metrics(system, frame, ids, _words(frame[name].astype(str)), labels, frame["value"])


def _wide(system: System, frame: pd.DataFrame, path: Path) -> pa.Table:
    import pandas as pd

    owner = next((column for column in ("tc", "serviceName", "service") if column in frame), None)
    if owner is None:
        raise DataError(f"{path} names no service in tc, serviceName or service; restore the file")
    numbers = [column for column in frame.columns if column not in (owner, *TIMES, "time_ns")]
    long = frame.melt(id_vars=[owner, "time_ns"], value_vars=numbers)
    ids = long[owner].astype(str)
    metric = pd.Series(long["variable"].astype(str))
    return _metrics(system, long, ids, _words(metric), constant("{}", len(long)), long["value"])


def _metrics(
    system: System, frame: pd.DataFrame, ids: pd.Series, metric: pa.Array, labels: pa.Array, text: pd.Series
) -> pa.Table:
    values = parse_numbers(text)
    rows = len(frame)
    table = _table(
        METRICS,
        {
            "time": _times(frame),
            "service": _components(system, ids),
            "pod": _words(ids),
            "container": absent(rows),
            "metric": metric,
            "labels": labels,
            "kind": constant("gauge", rows),
            "value": pa.array(np.nan_to_num(values)),
        },
    )
    return table.filter(pa.array(np.isfinite(values)))


def _mesh_labels(ids: pd.Series) -> pa.Array:
    """Return who called whom where an id says it: `pod.source.caller.callee`."""
    words, codes = np.unique(ids.to_numpy(dtype=str), return_inverse=True)
    labels = []
    for word in words:
        parts = word.split(".")
        told = len(parts) == 4 and parts[1] in ("source", "destination")
        seen = {"destination": parts[3], "seen_as": parts[1], "source": parts[2]} if told else {}
        labels.append(canonical_json(seen))
    return coded(labels, codes.astype(np.int32))


def _spans(system: System, frame: pd.DataFrame, names: dict[str, str | None]) -> pa.Table:
    import pandas as pd

    def column(ours: str) -> pd.Series:
        name = names[ours]
        return frame[name].astype(str) if name else pd.Series("", index=frame.index)

    rows = len(frame)
    ids = column("component")
    parent = column("parent")
    owner = _components(system, ids)
    elapsed = np.nan_to_num(parse_numbers(column("duration")))
    status, code = _outcome(frame)
    operation = pd.Series("unnamed", index=frame.index)
    for name in _OPERATIONS:
        if name in frame:
            told = frame[name].notna() & ~frame[name].isin(["", "None"])
            operation = operation.mask((operation == "unnamed") & told, frame[name])
    kind = frame["callType"].astype(str).str.lower() if "callType" in frame else pd.Series("", index=frame.index)
    return _table(
        SPANS,
        {
            "time": _times(frame),
            "trace_id": pa.array(column("trace"), pa.string()),
            "span_id": pa.array(column("span"), pa.string()),
            "parent_span_id": pa.array(parent.where(~parent.isin(_NO_PARENT)), pa.string(), from_pandas=True),
            "service": owner,
            "reported_service": owner,
            "peer_service": absent(rows),
            "pod": _words(ids),
            "operation": _words(operation),
            "kind": _words(
                kind.map({"jdbc": "client", "remoteprocess": "client", "local": "internal"}).fillna("server")
            ),
            "duration_ns": pa.array(np.round(elapsed * duration_factor(names)).astype(np.int64)),
            "status": _words(status),
            "status_code": pa.array(code, pa.int32(), from_pandas=True),
            "attributes": constant("{}", rows).cast(pa.string()),
        },
    )


def _outcome(frame: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return status and code: `success` says it in words, `status_code` as that of gRPC or HTTP."""
    import pandas as pd

    unset = pd.Series("unset", index=frame.index)
    if "success" in frame:
        well = frame["success"].astype(str).str.lower() == "true"
        return unset.mask(well, "ok").mask(~well, "error"), pd.Series(np.nan, index=frame.index).astype("Int32")
    if "status_code" not in frame:
        return unset, pd.Series(np.nan, index=frame.index).astype("Int32")
    text = frame["status_code"].astype(str).str.lower()
    codes = {word: None if word == "ok" else parse_status_code(word) for word in text.unique()}
    code = text.map(codes).astype("Int32")
    well = ((code == 0) | ((code >= 100) & (code < 400))).fillna(False) | text.isin(["ok", "unset"])
    known = code.notna() | text.isin(["ok", "error"])
    return unset.mask(known & well, "ok").mask(known & ~well, "error"), code


def _hashes(frame: pd.DataFrame, names: dict[str, str | None]) -> np.ndarray:
    import pandas as pd

    return pd.util.hash_pandas_object(frame[[names["trace"], names["span"]]], index=False).to_numpy()


def _repeated(codes: np.ndarray) -> np.ndarray:
    import pandas as pd

    return pd.Series(codes).duplicated().to_numpy()


def _components(system: System, ids: pd.Series) -> pa.DictionaryArray:
    return _words(ids.map({name: system.component_of(name) for name in ids.unique()}))


def _times(frame: pd.DataFrame) -> pa.Array:
    return pa.array(frame["time_ns"].to_numpy(), pa.int64()).cast(TIME)


def _words(column: pd.Series) -> pa.DictionaryArray:
    return pa.array(column, pa.string(), from_pandas=True).dictionary_encode()


def _table(schema: pa.Schema, columns: dict[str, pa.Array]) -> pa.Table:
    wanted = pa.schema([field for field in schema if field.name != "episode"])
    return pa.Table.from_arrays([columns[field.name].cast(field.type) for field in wanted], schema=wanted)
