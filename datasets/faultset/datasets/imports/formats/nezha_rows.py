"""Rows of Nezha's files, and the fault-free time of a day.

Pitfalls of the data: rows repeat across files; rows are torn where two processes wrote at the same time; `TimeUnixNano`
may be read from the middle of a message, hours or centuries off; JSON is nested in JSON; missing samples are `NaN`;
`TimeStamp` is unreliable.
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
from faultset.core.files import canonical_json
from faultset.datasets.imports.columns import (
    build_table,
    constant,
    encode_codes,
    encode_series,
    epoch_ns,
    parse_numbers,
)
from faultset.datasets.imports.formats.nezha_days import (
    MINUTE_NS,
    SAMPLED_AFTER_NS,
    Day,
    collector_runs,
    fault_window,
    healthy_window,
    injected_ns,
    minutes_of,
    sample_times,
    service_of,
)
from faultset.datasets.imports.spans import infer_kinds_and_peers, normalise_id_series

NODE_PREFIX = "Node"
"""Prefix of node metrics, which are repeated for each pod of the node."""
_RECORD = r'^(\{"log":"(?:[^"\\]|\\.)*","stream":"[^"]*","time":"[^"]*"\})'
_LINE = r"^(?:\d\d:\d\d:\d\d[.,]\d+\s+)?(?:(TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL)\s+)?(.*)$"
_IDS = r"TraceID:\s*[0-9a-fA-F]*\s+SpanID:\s*[0-9a-fA-F]*\s*"
_LEVELS = {"warn": "warning", "critical": "fatal"}
_SPAN_COLUMNS = (
    "TraceID", "SpanID", "ParentID", "PodName", "OperationName", "StartTimeUnixNano", "EndTimeUnixNano",
)  # fmt: skip
_LOG_COLUMNS = ("PodName", "Container", "TraceID", "SpanID", "Log")


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A time span of the source and its shift into the view."""

    start_ns: int
    end_ns: int
    moved_ns: int = 0
    """Shift to add to every time."""

    def inside(self, times: np.ndarray) -> np.ndarray:
        """Return which times are in the segment."""
        return (times >= self.start_ns) & (times < self.end_ns)


Sources = Sequence[tuple[Segment, Sequence[Path]]]
"""Segments with the files that cover them; rows outside are ignored."""


def read_spans(paths: Sequence[Path]) -> pd.DataFrame:
    """Return the distinct spans with `start` and `end` in nanoseconds and their service."""
    frame = _read_columns(paths, _SPAN_COLUMNS)
    for name in ("TraceID", "SpanID", "ParentID"):
        frame[name] = normalise_id_series(frame[name])
    frame = frame.drop_duplicates(["TraceID", "SpanID"], ignore_index=True)
    try:
        frame["start"], frame["end"] = (
            _parse_epochs(frame["StartTimeUnixNano"]),
            _parse_epochs(frame["EndTimeUnixNano"]),
        )
    except ValueError as error:
        names = ", ".join(path.name for path in paths)
        raise DataError(f"times of spans must be numbers ({error}, in one of {names}); restore the files") from error
    frame["service"] = _map_services(frame["PodName"])
    return frame.drop(columns=["StartTimeUnixNano", "EndTimeUnixNano"])


def read_logs(paths: Sequence[Path]) -> pd.DataFrame:
    """Return the distinct log lines with `time` in nanoseconds, `level`, `message` and their service.

    The time is the container runtime's. Torn records are left out.
    """
    frame = _read_columns(paths, _LOG_COLUMNS)
    complete = frame["Log"].str.extract(_RECORD)[0]
    frame = frame.assign(Log=complete).dropna(subset=["Log"]).drop_duplicates(ignore_index=True)
    records = _parse_objects(frame.pop("Log"), ("log", "time"))
    times = pd.to_datetime(records["time"], utc=True, format="ISO8601", errors="coerce")
    frame["time"] = times.astype("datetime64[ns, UTC]").astype("int64").to_numpy()
    inner = records["log"].str.rstrip("\n")
    frame["level"], frame["message"] = _level_and_message(inner)
    frame["service"] = _map_services(frame["PodName"])
    return frame[times.notna().to_numpy()].reset_index(drop=True)


def span_rows(sources: Sources) -> Iterator[pa.Table]:
    """Yield the table `spans`."""
    frames = [_within(read_spans(paths), segment, "start") for segment, paths in sources if paths]
    if not frames:
        return
    # Traces may cross the border between two segments.
    frame = pd.concat(frames, ignore_index=True).drop_duplicates(["TraceID", "SpanID"], ignore_index=True)
    parents = frame["ParentID"].where(frame["ParentID"] != "root")
    service = encode_series(frame["service"])
    # Ids are unique within a trace only.
    kind, peer = infer_kinds_and_peers(
        pa.array(frame["TraceID"] + frame["SpanID"], pa.string()),
        pa.array(frame["TraceID"] + parents, pa.string(), from_pandas=True),
        service,
    )
    yield build_table(
        "spans",
        {
            "time": pa.array(frame["start"].to_numpy(), pa.int64()),
            "trace_id": pa.array(frame["TraceID"], pa.string()),
            "span_id": pa.array(frame["SpanID"], pa.string()),
            "parent_span_id": pa.array(parents, pa.string(), from_pandas=True),
            "service": service,
            "reported_service": service,
            "peer_service": peer,
            "pod": encode_series(frame["PodName"]),
            "operation": encode_series(frame["OperationName"]),
            "kind": kind,
            "duration_ns": pa.array((frame["end"] - frame["start"]).to_numpy(), pa.int64()),
            "status": constant("unset", len(frame)),
        },
    )


def log_rows(sources: Sources) -> Iterator[pa.Table]:
    """Yield the table `logs`."""
    for segment, paths in sources:
        if not paths:
            continue
        frame = _within(read_logs(paths), segment, "time")
        yield build_table(
            "logs",
            {
                "time": pa.array(frame["time"].to_numpy(), pa.int64()),
                "service": encode_series(frame["service"]),
                "pod": encode_series(frame["PodName"]),
                "container": encode_series(frame["Container"]),
                "level": encode_series(frame["level"]),
                "message": pa.array(frame["message"], pa.string()),
                "trace_id": pa.array(frame["TraceID"], pa.string()),
                "span_id": pa.array(frame["SpanID"], pa.string()),
            },
        )


def metric_rows(day: Day, segments: Sequence[tuple[Segment, Path]]) -> Iterator[pa.Table]:
    """Yield the table `metrics`, one pod at a time, without missing samples."""
    for segment, folder in segments:
        for path in day.metric_files(folder):
            frame = read_metric_file(path)
            times = sample_times(frame["Time"], path)
            inside = segment.inside(times)
            if inside.any():
                yield _build_pod_metrics(frame[inside], times[inside] + segment.moved_ns, path)


def read_metric_file(path: Path) -> pd.DataFrame:
    """Return the metrics of a pod as text, without repeated headers."""
    try:
        frame = pd.read_csv(path, dtype=str, encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}); restore it or leave the case out") from error
    if not {"Time", "PodName"} <= set(frame.columns):
        raise DataError(f"{path} has no columns Time and PodName; restore the file")
    return frame[frame["Time"] != "Time"].drop_duplicates("Time", ignore_index=True)


def _build_pod_metrics(frame: pd.DataFrame, times: np.ndarray, path: Path) -> pa.Table:
    pod = str(frame["PodName"].iloc[0])
    names = [name for name in frame.columns if name not in ("Time", "TimeStamp", "PodName")]
    if not names:
        raise DataError(f"{path} must have columns of metrics, but has none; restore the file")
    values = np.array([parse_numbers(frame[name]) for name in names])
    row, column = np.nonzero(np.isfinite(values))
    code = row.astype(np.int32)
    of_node = [name.startswith(NODE_PREFIX) for name in names]
    node_labels = canonical_json({"seen_from_pod": pod})
    return build_table(
        "metrics",
        {
            "time": pa.array(times[column], pa.int64()),
            "service": encode_codes([None if node else service_of(pod) for node in of_node], code),
            "pod": encode_codes([None if node else pod for node in of_node], code),
            "metric": encode_codes(names, code),
            "labels": encode_codes([node_labels if node else "{}" for node in of_node], code),
            "kind": constant("gauge", len(code)),
            "value": pa.array(values[row, column]),
        },
    )


def _read_columns(paths: Sequence[Path], columns: Sequence[str]) -> pd.DataFrame:
    """Read columns of several files as text; surplus cells of torn rows are cut off."""
    frames = []
    for path in paths:
        try:
            # With `usecols`, the parser accepts rows that are too long.
            frame = pd.read_csv(path, usecols=list(columns), dtype=str, encoding="utf-8-sig", keep_default_na=False)
        except (OSError, ValueError) as error:
            raise DataError(f"{path} cannot be read ({error}); restore it or leave the case out") from error
        frames.append(frame[frame[columns[0]] != columns[0]])
    if not frames:
        return pd.DataFrame(columns=list(columns), dtype=str)
    return pd.concat(frames, ignore_index=True)


def _within(frame: pd.DataFrame, segment: Segment, column: str) -> pd.DataFrame:
    rows = frame[segment.inside(frame[column].to_numpy())].copy()
    for name in {"start", "end", "time"} & set(rows.columns):
        rows[name] += segment.moved_ns
    return rows


def _parse_objects(texts: pd.Series, fields: Sequence[str]) -> pd.DataFrame:
    """Parse one JSON object per row and return the given text fields."""
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
    groups = lines.str.extract(_LINE, flags=re.S)
    level, message = groups[0].str.lower(), groups[1].fillna(lines)
    nested = lines.str.match(r'^\{".*\}$')
    if nested.any():
        inner = _parse_objects(lines[nested], ("message", "severity"))
        inner.index = lines.index[nested]
        level = level.mask(nested, inner["severity"].reindex(lines.index).str.lower())
        message = message.mask(nested & inner["message"].reindex(lines.index).notna(), inner["message"])
    return level.replace(_LEVELS), message.str.replace(_IDS, "", n=1, regex=True)


def _map_services(pods: pd.Series) -> pd.Series:
    return pods.map({pod: service_of(pod) for pod in pods.unique()})


def _parse_epochs(column: pd.Series) -> np.ndarray:
    return epoch_ns(column.astype("int64").to_numpy())


MIN_MINUTES, MAX_MINUTES = 2, 5


@dataclass(frozen=True, kw_only=True)
class HealthyReference:
    """Fault-free segments of a day, moved so that they end where the minutes of a fault begin."""

    folder: Path
    """Folder of the metrics."""
    spans: Sources
    logs: Sources
    length_ns: int
    origin: str
    """Origin of the segments in words."""

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The fault-free segments."""
        return tuple(segment for segment, _ in self.spans)

    @property
    def metric_segments(self) -> tuple[Segment, ...]:
        """The fault-free segments of the metrics, which are sampled after the minute that they describe."""
        return tuple(
            Segment(
                start_ns=segment.start_ns + SAMPLED_AFTER_NS,
                end_ns=segment.end_ns + SAMPLED_AFTER_NS,
                moved_ns=segment.moved_ns - SAMPLED_AFTER_NS,
            )
            for segment in self.segments
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
    """Return the day's fault-free time or, if its files are missing, the minutes before the day's other faults.

    Parameters
    ----------
    end_ns
        End of the reference in the view.
    """
    traces, logs = day.reference_files("trace"), day.reference_files("log")
    if not traces and not logs:
        return _minutes_before_faults(day, fault, end_ns)
    spans, lines = read_spans(traces), read_logs(logs)
    times = pd.concat([spans["start"], lines["time"]])
    if times.empty:
        raise DataError(f"{day.construct} needs traces or logs of a fault-free minute; restore them")
    start, end = healthy_window(int(times.min()), int(times.max()), collector_runs(day.construct))
    segment = Segment(start_ns=start, end_ns=end, moved_ns=end_ns - end)
    return HealthyReference(
        folder=day.construct,
        spans=((segment, traces),),
        logs=((segment, logs),),
        length_ns=end - start,
        origin=f"the fault-free time of the day, moved by {segment.moved_ns} ns",
    )


def _minutes_before_faults(day: Day, fault: Mapping[str, str], end_ns: int) -> HealthyReference:
    """Join the minutes before the other faults of the day that are nearest in time to this one.

    If the minutes of the fault have traces, only minutes with traces are used, so that healthy rates do not come from
    minutes without recorded spans.
    """
    runs = collector_runs(day.rca)
    fault_ns = injected_ns(fault)
    has_traces = bool(day.minute_files("trace", minutes_of(fault_ns)))
    minutes: list[tuple[int, int, list[Path]]] = []
    for other in day.faults:
        inject_ns = injected_ns(other)
        files = day.minute_files("trace", minutes_of(inject_ns)[:1])
        if inject_ns == fault_ns or (has_traces and not files):
            continue
        start_ns = fault_window(inject_ns, runs)[0]
        minutes.append((start_ns, min(start_ns + MINUTE_NS, inject_ns), files if has_traces else []))
    if len(minutes) < MIN_MINUTES:
        raise DataError(
            f"{day.construct} needs traces or logs of a fault-free minute, or {day.rca} at least {MIN_MINUTES} "
            "minutes before other faults; restore them"
        )
    nearest = sorted(minutes, key=lambda minute: abs(minute[0] - fault_ns))[:MAX_MINUTES]
    minutes = sorted(nearest, key=lambda minute: minute[0])
    first_ns = end_ns - len(minutes) * MINUTE_NS
    spans = tuple(
        (Segment(start_ns=start, end_ns=end, moved_ns=first_ns + number * MINUTE_NS - start), files)
        for number, (start, end, files) in enumerate(minutes)
    )
    return HealthyReference(
        folder=day.rca,
        spans=spans,
        logs=(),
        length_ns=len(minutes) * MINUTE_NS,
        origin=f"{len(minutes)} minutes before other faults of the day, joined",
    )
