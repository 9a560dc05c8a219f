"""Days of Nezha's data, their faults and labels, and the rows of their files.

A day has a folder of minutes around its faults, a folder with fault-free time, and a list of faults. The collector
ran once a minute, a few seconds past the minute. The file `HH_MM` and the metric sample of `HH:MM` cover the time
from the previous run to the run at `HH:MM`.

`inject_time` is UTC, like the telemetry. `inject_timestamp` is the same instant in some rows. In others it is eight
hours early, because local time was read as UTC, and up to nine minutes off. The import only copies it to the
parameters of the label.

The published answers name two consecutive log lines or span starts between which the code was changed. The first
request in which they are no longer consecutive is the first sign of the fault. If it precedes `inject_time`, by up to
a minute, it is the onset.

Pitfalls of the rows: they repeat across files; they are torn where two processes wrote at the same time; `TimeUnixNano`
may be read from the middle of a message, hours or centuries off; JSON is nested in JSON; missing samples are `NaN`;
`TimeStamp` is unreliable.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.json as pajson

from faultset.core.errors import DataError
from faultset.core.files import canonical_json
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.columns import (
    Ints,
    build_table,
    constant,
    encode_codes,
    encode_series,
    epoch_ns,
    infer_kinds_and_peers,
    normalise_id_series,
    parse_numbers,
    parsing,
    read_csv,
    read_json,
)
from faultset.datasets.telemetry_formats.log_lines import read_level

MINUTE_NS = 60 * SECOND_NS
LEAD_NS = 4 * SECOND_NS
"""Time from the start of a window to the collector's run, so that no sample falls on an edge."""
TAIL_NS = 10 * SECOND_NS
"""Time after the last run within which all pods are sampled."""
SAMPLED_AFTER_NS = LEAD_NS + TAIL_NS
"""Maximum time from the end of a window to the metric sample that describes its last minute."""
MINUTES_BEFORE, MINUTES_AFTER = 1, 2
"""Minutes of a view before and after the start of the injection's minute."""
_FAULT_LIST = "-fault_list.json"
_POD = re.compile(r"-[a-z0-9]+-[a-z0-9]+$")


@dataclass(frozen=True, kw_only=True)
class Day:
    """A day: its faults, the minutes around them, and the fault-free time."""

    name: str
    root: Path
    rca: Path
    construct: Path
    faults: tuple[Mapping[str, str], ...]
    fault_list: Path

    def minute_files(self, kind: str, minutes: tuple[str, ...]) -> list[Path]:
        """Return the existing files of a kind (`log`, `trace`) for minutes `HH_MM`."""
        paths = [self.rca / kind / f"{minute}_{kind}.csv" for minute in minutes]
        return [path for path in paths if path.is_file()]

    def reference_files(self, kind: str) -> list[Path]:
        """Return all files of a kind in the fault-free folder."""
        return list_files(self.construct, kind)

    @property
    def has_fault_free_files(self) -> bool:
        """Whether the fault-free time has traces or logs."""
        return bool(self.reference_files("trace") or self.reference_files("log"))


def list_files(folder: Path, kind: str) -> list[Path]:
    """Return all files of a kind (`log`, `metric`, `trace`) in a folder of a day, sorted."""
    return sorted((folder / kind).glob(f"*_{kind}.csv"))


def case_key(day: Day, fault: Mapping[str, str]) -> str:
    return f"{day.name}/{fault['inject_time'][11:]}/{fault['inject_pod']}/{fault['inject_type']}"


def find_days(root: Path) -> list[Day]:
    """Return all days below a folder, in order; raise DataError if fault lists or fault-free data are missing."""
    days = []
    for fault_list in sorted(root.rglob(f"*{_FAULT_LIST}")):
        rca = fault_list.parent
        base = rca.parent.parent
        construct = base / "construct_data" / rca.name
        if not construct.is_dir():
            raise DataError(f"{rca} needs fault-free data in {construct}, which is missing; restore the folder")
        faults = _read_fault_list(fault_list)
        days.append(Day(name=rca.name, root=base, rca=rca, construct=construct, faults=faults, fault_list=fault_list))
    return days


def service_of(pod: str) -> str:
    """Return the workload of a pod.

    >>> service_of("ts-route-service-b6c59fb57-zv8dt")
    'ts-route-service'
    """
    return _POD.sub("", pod)


def injected_ns(fault: Mapping[str, str]) -> int:
    moment = datetime.strptime(fault["inject_time"], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    return int(moment.timestamp()) * SECOND_NS


def minutes_of(inject_ns: int) -> tuple[str, ...]:
    """Return the names of the minutes sampled for a fault.

    >>> minutes_of(1674986284000000000)
    ('09_58', '09_59', '10_00')
    """
    first = inject_ns // MINUTE_NS
    return tuple(
        datetime.fromtimestamp((first + step) * 60, tz=UTC).strftime("%H_%M") for step in range(MINUTES_AFTER + 1)
    )


def collector_runs(folder: Path) -> Ints:
    """Return the sorted times of collector runs from the metrics of the first pod; DataError if there are none."""
    files = list_files(folder, "metric")
    if not files:
        raise DataError(f"{folder / 'metric'} must hold metrics, but holds none; restore the folder")
    column = read_csv(files[0], columns=["Time"], text=["Time"])["Time"].to_pandas()
    return np.sort(sample_times(column[column != "Time"], files[0]))


def sample_times(column: Any, origin: Path) -> Ints:
    """Return the column `Time` as UTC nanoseconds; Go printed it with its monotonic clock.

    The column `TimeStamp` is not used, because it is 200,000,000 s late in some files.
    """
    texts = column.astype(str).str.partition(" +")[0]
    times = pd.to_datetime(texts, errors="coerce", utc=True, format="ISO8601")
    if times.isna().any():
        raise DataError(f"{origin} has an unreadable cell in column Time; restore the file")
    return times.astype("datetime64[ns, UTC]").astype("int64").to_numpy()


def _grid_phase(runs: Ints, around_ns: int) -> int:
    """Return the offset of windows within a minute: `LEAD_NS` before the collector run nearest to a time."""
    nearest = int(runs[np.abs(runs - around_ns).argmin()])
    return (nearest // SECOND_NS * SECOND_NS - LEAD_NS) % MINUTE_NS


def healthy_window(first_ns: int, last_ns: int, runs: Ints) -> tuple[int, int]:
    """Return a window of whole minutes from the first to the last row, up to the collector's jitter."""
    phase = _grid_phase(runs, first_ns)
    start = (first_ns - phase) // MINUTE_NS * MINUTE_NS + phase
    minutes = -(-(last_ns + 1 - LEAD_NS - start) // MINUTE_NS)
    return start, start + max(1, minutes) * MINUTE_NS


def fault_window(inject_ns: int, runs: Ints) -> tuple[int, int]:
    """Return the time covered by the sampled minutes of a fault, from before the first to after the last run."""
    minute = inject_ns // MINUTE_NS * MINUTE_NS
    phase = _grid_phase(runs, minute)
    # The collector runs a few seconds after the start of a minute.
    start = minute - MINUTES_BEFORE * MINUTE_NS + (phase if phase + LEAD_NS < MINUTE_NS else phase - MINUTE_NS)
    return start, start + (MINUTES_BEFORE + MINUTES_AFTER) * MINUTE_NS + TAIL_NS


def _read_fault_list(path: Path) -> tuple[Mapping[str, str], ...]:
    fields = ("inject_time", "inject_timestamp", "inject_pod", "inject_type")
    with parsing(path, "be a list of faults"):
        hours = json.loads(path.read_text(encoding="utf-8-sig"))
        faults = [fault for _, hour_faults in sorted(hours.items()) for fault in hour_faults]
        return tuple({name: str(fault[name]) for name in fields} for fault in faults)


MAX_BROKEN = 0.05
"""Share of healthy requests that may lack the second event, because they were cut at the edge of a file."""
APPS = {"ts": "train-ticket", "hipster": "online-boutique"}


def answer_files(root: Path) -> list[Path]:
    return sorted((root / "construct_data").glob("root_cause_*.json"))


def read_answers(root: Path) -> dict[str, dict[str, dict[str, str]]]:
    return {path.stem.removeprefix("root_cause_"): read_json(path) for path in answer_files(root)}


def app_of(day: Day, answers: Mapping[str, Any]) -> str:
    """Return the application of a day: the one with most of the faulty services."""
    services = {service_of(fault["inject_pod"]) for fault in day.faults}
    hits = {namespace: len(services & answers[namespace].keys()) for namespace in answers}
    best = max(hits, key=lambda namespace: hits[namespace], default="")
    if not hits.get(best):
        best = "ts" if any(name.startswith("ts-") for name in services) else "hipster"
    return APPS.get(best, best)


def answer_of(fault: Mapping[str, str], answers: Mapping[str, Any]) -> str | None:
    """Return the published answer for a fault: a metric, or two events joined by `_`."""
    for services in answers.values():
        answer = services.get(service_of(fault["inject_pod"]), {}).get(fault["inject_type"])
        if answer:
            return str(answer)
    return None


@dataclass(frozen=True, kw_only=True)
class ServiceTelemetry:
    """Logs and spans of a service."""

    logs: pd.DataFrame
    """Lines with `time`, `SpanID` and `message`."""
    spans: pd.DataFrame
    """Spans with `start`, `TraceID`, `SpanID`, `ParentID` and `OperationName`."""


def first_sign_ns(answer: str | None, faulty: ServiceTelemetry, healthy: ServiceTelemetry) -> int | None:
    """Return the time of the first request in which two events are no longer consecutive; None if there is none.

    Callers that lack the second event in healthy time are ignored. A single broken request among complete ones is
    ignored too, because it was cut at the edge of a file. `answer` names the events as `A_B`, or something else.
    """
    first, separator, second = (answer or "").partition("_")
    if not separator or faulty.logs.empty or healthy.logs.empty:
        return None
    share = _first_events(first, second, healthy).groupby("caller")["broken"].mean()
    events = _first_events(first, second, faulty)
    events = events[events["caller"].isin(share[share <= MAX_BROKEN].index)].sort_values("time", kind="stable")
    broken = events["broken"].to_numpy(dtype=bool)
    lasting = broken & np.append(broken[1:], True)
    return int(events["time"].to_numpy()[lasting][0]) if lasting.any() else None


def _first_events(first: str, second: str, telemetry: ServiceTelemetry) -> pd.DataFrame:
    """Return each first event with its `time`, the `caller`'s operation, and whether the second is missing."""
    ordered, spans = telemetry.logs.sort_values(["SpanID", "time"], kind="stable"), telemetry.spans
    text = ordered["message"]
    if first.endswith(" start"):
        started = spans[spans["OperationName"].str.contains(first.removesuffix(" start"), regex=False)]
        line = ordered.drop_duplicates("SpanID").set_index("SpanID")["message"].reindex(started["SpanID"]).fillna("")
        operations = spans.drop_duplicates("SpanID").set_index("SpanID")["OperationName"]
        return pd.DataFrame({
            "time": started["start"].to_numpy(),
            "caller": operations.reindex(started["ParentID"]).fillna("").to_numpy(),
            "broken": ~line.str.contains(second, regex=False).to_numpy(dtype=bool),
        })  # fmt: skip
    matches = text.str.contains(first, regex=False).to_numpy(dtype=bool)
    same_span = (ordered["SpanID"] == ordered["SpanID"].shift(-1)).to_numpy()
    complete = same_span & text.shift(-1).fillna("").str.contains(second, regex=False).to_numpy(dtype=bool)
    return pd.DataFrame({"time": ordered["time"].to_numpy()[matches], "caller": "", "broken": ~complete[matches]})


_LOG_RECORD = r'^(\{"log":"(?:[^"\\]|\\.)*","stream":"[^"]*","time":"[^"]*"\})'
_LOG_LINE = r"^(?:\d\d:\d\d:\d\d[.,]\d+\s+)?(?:(TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL)\s+)?(.*)$"
_LOG_IDS = r"TraceID:\s*[0-9a-fA-F]*\s+SpanID:\s*[0-9a-fA-F]*\s*"
_SPAN_COLUMNS = (
    "TraceID", "SpanID", "ParentID", "PodName", "OperationName", "StartTimeUnixNano", "EndTimeUnixNano",
)  # fmt: skip
_LOG_COLUMNS = ("PodName", "Container", "TraceID", "SpanID", "Log")


@dataclass(frozen=True)
class Segment:
    """A time span of the source and its shift into the view."""

    start_ns: int
    end_ns: int
    moved_ns: int = 0
    """Shift to add to every time."""

    def inside(self, times: np.ndarray) -> np.ndarray:
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
        for ours, theirs in (("start", "StartTimeUnixNano"), ("end", "EndTimeUnixNano")):
            frame[ours] = epoch_ns(frame.pop(theirs).astype("int64").to_numpy())
    except ValueError as error:
        names = ", ".join(path.name for path in paths)
        raise DataError(f"times of spans must be numbers ({error}, in one of {names}); restore the files") from error
    frame["service"] = _map_services(frame["PodName"])
    return frame


def read_logs(paths: Sequence[Path]) -> pd.DataFrame:
    """Return the distinct log lines with `time` in nanoseconds, `level`, `message` and their service.

    The time is the container runtime's. Torn records are left out.
    """
    frame = _read_columns(paths, _LOG_COLUMNS)
    complete = frame["Log"].str.extract(_LOG_RECORD)[0]
    frame = frame.assign(Log=complete).dropna(subset=["Log"]).drop_duplicates(ignore_index=True)
    records = _parse_objects(frame.pop("Log"), ("log", "time"))
    times = pd.to_datetime(records["time"], utc=True, format="ISO8601", errors="coerce")
    frame["time"] = times.astype("datetime64[ns, UTC]").astype("int64").to_numpy()
    inner = records["log"].str.rstrip("\n")
    frame["level"], frame["message"] = _level_and_message(inner)
    frame["service"] = _map_services(frame["PodName"])
    return frame[times.notna().to_numpy()].reset_index(drop=True)


def span_rows(sources: Sources) -> Iterator[pa.Table]:
    frames = [_select_segment(read_spans(paths), segment, "start") for segment, paths in sources if paths]
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
    for segment, paths in sources:
        if not paths:
            continue
        frame = _select_segment(read_logs(paths), segment, "time")
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


def metric_rows(segments: Sequence[tuple[Segment, Path]]) -> Iterator[pa.Table]:
    """Yield the table `metrics`, one pod at a time, without missing samples."""
    for segment, folder in segments:
        for path in list_files(folder, "metric"):
            frame = read_metric_file(path)
            times = sample_times(frame["Time"], path)
            inside = segment.inside(times)
            if inside.any():
                yield _build_pod_metrics(frame[inside], times[inside] + segment.moved_ns, path)


def read_metric_file(path: Path) -> pd.DataFrame:
    """Return the metrics of a pod as text, without repeated headers."""
    with parsing(path, "be CSV", "restore it or leave the case out"):
        frame = pd.read_csv(path, dtype=str, encoding="utf-8-sig")
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
    # Metrics of the node are repeated for each of its pods.
    of_node = [name.startswith("Node") for name in names]
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
        with parsing(path, f"be CSV with {', '.join(columns)}", "restore it or leave the case out"):
            # With `usecols`, the parser accepts rows that are too long.
            frame = pd.read_csv(path, usecols=list(columns), dtype=str, encoding="utf-8-sig", keep_default_na=False)
        frames.append(frame[frame[columns[0]] != columns[0]])
    if not frames:
        return pd.DataFrame(columns=list(columns), dtype=str)
    return pd.concat(frames, ignore_index=True)


def _select_segment(frame: pd.DataFrame, segment: Segment, column: str) -> pd.DataFrame:
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
    groups = lines.str.extract(_LOG_LINE, flags=re.S)
    level, message = groups[0].str.lower(), groups[1].fillna(lines)
    nested = lines.str.match(r'^\{".*\}$')
    if nested.any():
        inner = _parse_objects(lines[nested], ("message", "severity"))
        inner.index = lines.index[nested]
        level = level.mask(nested, inner["severity"].reindex(lines.index).str.lower())
        message = message.mask(nested & inner["message"].reindex(lines.index).notna(), inner["message"])
    return level.map({word: read_level(word) for word in level.dropna().unique()}), message.str.replace(
        _LOG_IDS, "", n=1, regex=True
    )


def _map_services(pods: pd.Series) -> pd.Series:
    return pods.map({pod: service_of(pod) for pod in pods.unique()})
