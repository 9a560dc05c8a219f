"""Rows of Nezha's files, and the time of a day that has no fault.

Traps: the same row in several files; rows torn by two writers; `TimeUnixNano` that was read from the middle of a
message, hours or centuries off; JSON within JSON; `NaN` where nothing was measured; a clock that cannot be trusted.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.json as pajson

from faultset.core.errors import DataError
from faultset.core.json_text import canonical_json
from faultset.datasets.format.schemas import LOGS, METRICS, SPANS, TIME
from faultset.datasets.imports.columns import coded, constant, epoch_ns, parse_numbers
from faultset.datasets.imports.formats.nezha_days import (
    MINUTE_NS,
    SAMPLED_AFTER_NS,
    Day,
    collector_runs,
    healthy_window,
    injected_ns,
    minutes_of,
    own_window,
    sample_times,
    service_of,
)
from faultset.datasets.imports.spans import normalise_texts

NODE_PREFIX = "Node"
"""Metrics of the node that a pod ran on, repeated for each of its pods."""
_RECORD = r'^(\{"log":"(?:[^"\\]|\\.)*","stream":"[^"]*","time":"[^"]*"\})'
_LINE = r"^(?:\d\d:\d\d:\d\d[.,]\d+\s+)?(?:(TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL)\s+)?(.*)$"
_IDS = r"TraceID:\s*[0-9a-fA-F]*\s+SpanID:\s*[0-9a-fA-F]*\s*"
_LEVELS = {"warn": "warning", "critical": "fatal"}
_SPAN_COLUMNS = (
    "TraceID", "SpanID", "ParentID", "PodName", "OperationName", "StartTimeUnixNano", "EndTimeUnixNano",
)  # fmt: skip
_LOG_COLUMNS = ("PodName", "Container", "TraceID", "SpanID", "Log")


@dataclass(frozen=True, kw_only=True)
class Part:
    """A stretch of the source's time, and where it goes."""

    start_ns: int
    end_ns: int
    moved_ns: int = 0
    """Added to every time."""

    def inside(self, times: np.ndarray) -> np.ndarray:
        """Say which times belong to it."""
        return (times >= self.start_ns) & (times < self.end_ns)


Sources = Sequence[tuple[Part, Sequence[Path]]]
"""Each part with the files that hold it; rows that lie outside of it are left out."""


def read_spans(paths: Sequence[Path]) -> pd.DataFrame:
    """Return spans, each once, with `start` and `end` in nanoseconds and the service."""
    frame = _read(paths, _SPAN_COLUMNS)
    for name in ("TraceID", "SpanID", "ParentID"):
        frame[name] = normalise_texts(frame[name])
    frame = frame.drop_duplicates(["TraceID", "SpanID"], ignore_index=True)
    try:
        frame["start"], frame["end"] = _epoch(frame["StartTimeUnixNano"]), _epoch(frame["EndTimeUnixNano"])
    except ValueError as error:
        names = ", ".join(path.name for path in paths)
        raise DataError(
            f"a span has a time that is no number ({error}), in one of {names}; restore the files"
        ) from error
    frame["service"] = _services(frame["PodName"])
    return frame.drop(columns=["StartTimeUnixNano", "EndTimeUnixNano"])


def read_logs(paths: Sequence[Path]) -> pd.DataFrame:
    """Return log lines, each once, with `time` in nanoseconds, `level`, `message` and the service.

    The time is the container runtime's. Lines whose record is torn before its end are left out.
    """
    import pandas as pd

    frame = _read(paths, _LOG_COLUMNS)
    whole = frame["Log"].str.extract(_RECORD)[0]
    frame = frame.assign(Log=whole).dropna(subset=["Log"]).drop_duplicates(ignore_index=True)
    records = _parsed(frame.pop("Log"), ("log", "time"))
    times = pd.to_datetime(records["time"], utc=True, format="ISO8601", errors="coerce")
    frame["time"] = times.astype("datetime64[ns, UTC]").astype("int64").to_numpy()
    inner = records["log"].str.rstrip("\n")
    frame["level"], frame["message"] = _level_and_message(inner)
    frame["service"] = _services(frame["PodName"])
    return frame[times.notna().to_numpy()].reset_index(drop=True)


def span_rows(sources: Sources) -> Iterator[pa.Table]:
    """Yield the table `spans`."""
    import pandas as pd

    parts = [_within(read_spans(paths), part, "start") for part, paths in sources if paths]
    if not parts:
        return
    # A trace across the border of two parts has one half in each; nothing of it may be told twice.
    frame = pd.concat(parts, ignore_index=True).drop_duplicates(["TraceID", "SpanID"], ignore_index=True)
    kinds, peers = _kinds_and_peers(frame)
    rows = len(frame)
    yield _table(
        SPANS,
        {
            "time": pa.array(frame["start"].to_numpy(), pa.int64()).cast(TIME),
            "trace_id": pa.array(frame["TraceID"], pa.string()),
            "span_id": pa.array(frame["SpanID"], pa.string()),
            "parent_span_id": pa.array(frame["ParentID"].where(frame["ParentID"] != "root"), pa.string()),
            "service": _words(frame["service"]),
            "reported_service": _words(frame["service"]),
            "peer_service": _words(peers),
            "pod": _words(frame["PodName"]),
            "operation": _words(frame["OperationName"]),
            "kind": coded(("internal", "client", "server"), kinds),
            "duration_ns": pa.array((frame["end"] - frame["start"]).to_numpy(), pa.int64()),
            "status": constant("unset", rows),
            "status_code": pa.nulls(rows, pa.int32()),
            "attributes": constant("{}", rows).cast(pa.string()),
        },
    )


def log_rows(sources: Sources) -> Iterator[pa.Table]:
    """Yield the table `logs`."""
    for part, paths in sources:
        if not paths:
            continue
        frame = _within(read_logs(paths), part, "time")
        yield _table(
            LOGS,
            {
                "time": pa.array(frame["time"].to_numpy(), pa.int64()).cast(TIME),
                "service": _words(frame["service"]),
                "pod": _words(frame["PodName"]),
                "container": _words(frame["Container"]),
                "level": _words(frame["level"]),
                "message": pa.array(frame["message"], pa.string()),
                "trace_id": pa.array(frame["TraceID"], pa.string()),
                "span_id": pa.array(frame["SpanID"], pa.string()),
            },
        )


def metric_rows(day: Day, parts: Sequence[tuple[Part, Path]]) -> Iterator[pa.Table]:
    """Yield the table `metrics`, pod by pod; what was not measured has no row."""
    for part, folder in parts:
        for path in day.metric_files(folder):
            frame = read_metric_file(path)
            times = sample_times(frame["Time"], path)
            inside = part.inside(times)
            if inside.any():
                yield _pod_metrics(frame[inside], times[inside] + part.moved_ns, path)


def read_metric_file(path: Path) -> pd.DataFrame:
    """Return one pod's metrics as they stand in the file, without repeated headers."""
    import pandas as pd

    try:
        frame = pd.read_csv(path, dtype=str, encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}); restore it or leave the case out") from error
    if not {"Time", "PodName"} <= set(frame.columns):
        raise DataError(f"{path} has no columns Time and PodName; restore the file")
    return frame[frame["Time"] != "Time"].drop_duplicates("Time", ignore_index=True)


def _pod_metrics(frame: pd.DataFrame, times: np.ndarray, path: Path) -> pa.Table:
    pod = str(frame["PodName"].iloc[0])
    names = [name for name in frame.columns if name not in ("Time", "TimeStamp", "PodName")]
    if not names:
        raise DataError(f"{path} has no metrics; restore the file")
    values = np.array([parse_numbers(frame[name]) for name in names])
    row, column = np.nonzero(np.isfinite(values))
    code = row.astype(np.int32)
    own = [not name.startswith(NODE_PREFIX) for name in names]
    seen = canonical_json({"seen_from_pod": pod})
    return _table(
        METRICS,
        {
            "time": pa.array(times[column], pa.int64()).cast(TIME),
            "service": coded([service_of(pod) if mine else None for mine in own], code),
            "pod": coded([pod if mine else None for mine in own], code),
            "container": pa.nulls(len(code), pa.string()).dictionary_encode(),
            "metric": coded(names, code),
            "labels": coded(["{}" if mine else seen for mine in own], code),
            "kind": constant("gauge", len(code)),
            "value": pa.array(values[row, column]),
        },
    )


def _read(paths: Sequence[Path], columns: Sequence[str]) -> pd.DataFrame:
    """Read columns of several files as text; the surplus of rows torn by two writers is cut off."""
    import pandas as pd

    frames = []
    for path in paths:
        try:
            # With a choice of columns the parser takes rows that are too long.
            frame = pd.read_csv(path, usecols=list(columns), dtype=str, encoding="utf-8-sig", keep_default_na=False)
        except (OSError, ValueError) as error:
            raise DataError(f"{path} cannot be read ({error}); restore it or leave the case out") from error
        frames.append(frame[frame[columns[0]] != columns[0]])
    if not frames:
        return pd.DataFrame(columns=list(columns), dtype=str)
    return pd.concat(frames, ignore_index=True)


def _within(frame: pd.DataFrame, part: Part, column: str) -> pd.DataFrame:
    kept = frame[part.inside(frame[column].to_numpy())].copy()
    for name in {"start", "end", "time"} & set(kept.columns):
        kept[name] += part.moved_ns
    return kept


def _parsed(texts: pd.Series, fields: Sequence[str]) -> pd.DataFrame:
    """Parse one JSON object a row; only the named text fields."""
    schema = pa.schema([(name, pa.string()) for name in fields])
    if texts.empty:
        return schema.empty_table().to_pandas()
    data = "\n".join(texts).encode()
    table = pajson.read_json(
        io.BytesIO(data),
        read_options=pajson.ReadOptions(block_size=len(data) + 1),
        parse_options=pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    return table.select(list(fields)).to_pandas()


def _level_and_message(lines: pd.Series) -> tuple[pd.Series, pd.Series]:
    found = lines.str.extract(_LINE, flags=re.S)
    level, message = found[0].str.lower(), found[1].fillna(lines)
    nested = lines.str.match(r'^\{".*\}$')
    if nested.any():
        inner = _parsed(lines[nested], ("message", "severity"))
        inner.index = lines.index[nested]
        level = level.mask(nested, inner["severity"].reindex(lines.index).str.lower())
        message = message.mask(nested & inner["message"].reindex(lines.index).notna(), inner["message"])
    return level.replace(_LEVELS), message.str.replace(_IDS, "", n=1, regex=True)


def _kinds_and_peers(frame: pd.DataFrame) -> tuple[np.ndarray, pd.Series]:
    """Say which spans serve and which call, by the services of their parents and children; not told otherwise."""
    import pandas as pd

    keys = pd.MultiIndex.from_frame(frame[["TraceID", "SpanID"]])
    parents = pd.MultiIndex.from_arrays([frame["TraceID"], frame["ParentID"]])
    place = pd.Series(np.arange(len(frame)), index=keys).reindex(parents).to_numpy()
    known = np.isfinite(place)
    row = np.where(known, place, 0).astype(np.int64)
    service = frame["service"].to_numpy()
    crossing = known & (service[row] != service)
    kinds = np.zeros(len(frame), dtype=np.int32)
    peers = np.full(len(frame), None, dtype=object)
    callers, callees = row[crossing], service[crossing]
    kinds[callers] = 1
    peers[callers] = callees
    kinds[crossing | (frame["ParentID"] == "root").to_numpy()] = 2
    return kinds, pd.Series(peers, dtype=object)


def _services(pods: pd.Series) -> pd.Series:
    return pods.map({pod: service_of(pod) for pod in pods.unique()})


def _epoch(column: pd.Series) -> np.ndarray:
    return epoch_ns(column.astype("int64").to_numpy())


def _words(column: pd.Series) -> pa.DictionaryArray:
    return pa.array(column, pa.string(), from_pandas=True).dictionary_encode()


def _table(schema: pa.Schema, columns: dict[str, pa.Array]) -> pa.Table:
    wanted = pa.schema([field for field in schema if field.name != "episode"])
    return pa.Table.from_arrays([columns[field.name].cast(field.type) for field in wanted], schema=wanted)


FEWEST_MINUTES, MOST_MINUTES = 2, 5


@dataclass(frozen=True, kw_only=True)
class HealthyReference:
    """Stretches of a day without a fault, moved to where they end with the beginning of a fault's minutes."""

    folder: Path
    """Where the metrics are."""
    spans: Sources
    logs: Sources
    length_ns: int
    told: str
    """Where it comes from, in words."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """The stretches."""
        return tuple(part for part, _ in self.spans)

    @property
    def sampled(self) -> tuple[Part, ...]:
        """The stretches for metrics: the sample that describes a minute is taken at its end, and moved back into it."""
        return tuple(
            Part(
                start_ns=part.start_ns + SAMPLED_AFTER_NS,
                end_ns=part.end_ns + SAMPLED_AFTER_NS,
                moved_ns=part.moved_ns - SAMPLED_AFTER_NS,
            )
            for part in self.parts
        )

    @property
    def trace_files(self) -> list[Path]:
        """All files with spans."""
        return [path for _, paths in self.spans for path in paths]

    @property
    def log_files(self) -> list[Path]:
        """All files with log lines."""
        return [path for _, paths in self.logs for path in paths]


def healthy_time(day: Day, fault: Mapping[str, str], end_ns: int) -> HealthyReference:
    """Return the fault-free time that the source gives; where its files are missing, the minutes before other faults.

    Parameters
    ----------
    end_ns
        Where it shall end in the view.
    """
    traces, logs = day.reference_files("trace"), day.reference_files("log")
    if not traces and not logs:
        return _minutes_before_faults(day, fault, end_ns)
    spans, lines = read_spans(traces), read_logs(logs)
    times = pd.concat([spans["start"], lines["time"]])
    if times.empty:
        raise DataError(f"{day.construct} has neither traces nor logs of a fault-free minute; restore them")
    start, end = healthy_window(int(times.min()), int(times.max()), collector_runs(day.construct))
    part = Part(start_ns=start, end_ns=end, moved_ns=end_ns - end)
    return HealthyReference(
        folder=day.construct,
        spans=((part, traces),),
        logs=((part, logs),),
        length_ns=end - start,
        told=f"the fault-free time of the day, moved by {part.moved_ns} ns",
    )


def _minutes_before_faults(day: Day, fault: Mapping[str, str], end_ns: int) -> HealthyReference:
    """Put the minutes before the other faults, those nearest in time, one after the other.

    Where the minutes of the fault have traces, only minutes with traces are taken, so that healthy rates are not those
    of minutes in which nothing was recorded.
    """
    runs = collector_runs(day.rca)
    own = injected_ns(fault)
    traced = bool(day.minute_files("trace", minutes_of(own)))
    chosen: list[tuple[int, int, list[Path]]] = []
    for other in day.faults:
        inject_ns = injected_ns(other)
        files = day.minute_files("trace", minutes_of(inject_ns)[:1])
        if inject_ns == own or (traced and not files):
            continue
        start_ns = own_window(inject_ns, runs)[0]
        chosen.append((start_ns, min(start_ns + MINUTE_NS, inject_ns), files if traced else []))
    if len(chosen) < FEWEST_MINUTES:
        raise DataError(
            f"{day.construct} has neither traces nor logs of a fault-free minute, and {day.rca} has no minutes before "
            "other faults; restore them"
        )
    nearest = sorted(chosen, key=lambda one: abs(one[0] - own))[:MOST_MINUTES]
    chosen = sorted(nearest, key=lambda one: one[0])
    first_ns = end_ns - len(chosen) * MINUTE_NS
    spans = tuple(
        (Part(start_ns=start, end_ns=end, moved_ns=first_ns + place * MINUTE_NS - start), files)
        for place, (start, end, files) in enumerate(chosen)
    )
    return HealthyReference(
        folder=day.rca,
        spans=spans,
        logs=(),
        length_ns=len(chosen) * MINUTE_NS,
        told=f"{len(chosen)} minutes before other faults of the day, one after the other",
    )
