"""Folders, windows and labels of rcabench's datapacks."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from faultset.core.errors import DataError
from faultset.core.files import canonical_json
from faultset.core.times import SECOND_NS
from faultset.datasets.format.labels import join_distinct
from faultset.datasets.imports.columns import Ints, epoch_ns, read_parquet
from faultset.datasets.imports.contract import Case, build_cause

STAGES = ("normal", "abnormal")
KINDS = ("metrics", "metrics_sum", "metrics_histogram", "traces", "logs")
CLOCKS = ("time", "TimeUnix", "Timestamp")
ENVIRONMENT = "env.json"
INJECTION = "injection.json"
CONCLUSION = "conclusion.parquet"
INVALID = ".invalid"
_TYPICAL_FILES = tuple(f"{stage}_{kind}.parquet" for stage in STAGES for kind in ("metrics", "traces", "logs"))
_MAX_DEPTH = 6
_QUARTER_NS = 900 * SECOND_NS
"""Offsets of time zones are multiples of a quarter of an hour."""
_TOLERANCE_NS = 60 * SECOND_NS
"""Maximum distance of the first row from the start of its window; metrics may be sampled once a minute."""
_STRAY_SHARE = 0.01
"""Share of rows at either end that may be stray."""
_STRAY_DISTANCE = 0.1
"""Minimum distance of stray rows from the other rows, as a share of the time that the other rows cover."""
_MIN_INSIDE = 0.5
"""Share of the rows of a stage that must be in its window."""


@dataclass(frozen=True, kw_only=True)
class DatapackWindows:
    """The two windows of a datapack in UTC nanoseconds."""

    start_ns: int
    onset_ns: int
    end_ns: int
    shift_ns: int
    """Correction of the times in `env.json` for a wrong time zone, in whole quarters of an hour."""
    outside: int = 0
    """Rows outside the windows, which are left out."""


def datapacks(path: Path) -> Iterator[Path]:
    """Yield every folder with the files of a datapack, sorted, down to a maximum depth."""
    root = path.resolve() if path.is_dir() else path
    # Converted datapacks are often links to the raw ones.
    for name, subfolders, files in os.walk(root, followlinks=True):
        folder = Path(name)
        if is_datapack(files):
            subfolders.clear()
            yield folder
        subfolders.sort()
        if len(folder.relative_to(root).parts) >= _MAX_DEPTH:
            subfolders.clear()


def is_datapack(files: Collection[str]) -> bool:
    """Return whether a folder with these files is a datapack."""
    return any(name in files for name in _TYPICAL_FILES) and (INJECTION in files or ENVIRONMENT in files)


def find_cases(path: Path) -> Sequence[Case]:
    """Return all datapacks that are not marked invalid, sorted by name."""
    packs = [pack for pack in datapacks(path) if not (pack / INVALID).exists()]
    if not packs:
        raise DataError(
            f"{path} holds no valid datapack: a folder with {ENVIRONMENT}, {INJECTION} and files such as "
            f"{_TYPICAL_FILES[0]}; give the top folder of the unpacked data"
        )
    cases = [Case(key=case_key(pack), paths=(pack,), has_fault=True) for pack in packs]
    return sorted(cases, key=lambda case: case.key)


def read_json(path: Path) -> Any:
    """Read a JSON file; raise DataError if it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise DataError(f"{path} is missing; restore it or leave the datapack out") from None
    except ValueError as error:
        raise DataError(f"{path} must be JSON ({error}); restore it or leave the datapack out") from None


def windows_of(pack: Path) -> DatapackWindows:
    """Return the windows in a datapack's `env.json`, corrected for a wrong time zone, or else those of its telemetry.

    Raises
    ------
    DataError
        `env.json` cannot be read, or the telemetry is outside the windows.
    """
    normal, abnormal = _stage_times(pack, "normal"), _stage_times(pack, "abnormal")
    if not len(normal) and not len(abnormal):
        raise DataError(f"{pack} has no telemetry; leave the datapack out")
    environment = read_json(pack / ENVIRONMENT) if (pack / ENVIRONMENT).is_file() else {}
    names = ("NORMAL_START", "ABNORMAL_START", "ABNORMAL_END")
    try:
        start, onset, end = (int(epoch_ns([float(environment[name])])[0]) for name in names)
    except KeyError:
        if not len(normal) or not len(abnormal):
            raise DataError(
                f"{pack / ENVIRONMENT} lacks the windows, and one of them has no telemetry; leave the datapack out"
            ) from None
        (start, _), (onset, last) = _find_extent(normal), _find_extent(abnormal)
        return DatapackWindows(start_ns=start, onset_ns=onset, end_ns=last + 1, shift_ns=0)
    except (TypeError, ValueError):
        raise DataError(f"{pack / ENVIRONMENT} must hold {', '.join(names)} as seconds since 1970") from None
    if not start < onset < end:
        raise DataError(f"{pack / ENVIRONMENT}: {', '.join(names)} must be in this order; leave the datapack out")
    shift = _zone_offset(_find_extent(normal)[0] - start if len(normal) else _find_extent(abnormal)[0] - onset)
    windows = (start + shift, onset + shift), (onset + shift, end + shift)
    inside = [_count_inside(times, *window) for times, window in zip((normal, abnormal), windows, strict=True)]
    rows = len(normal) + len(abnormal)
    total = _count_inside(normal, windows[0][0], windows[1][1]) + _count_inside(abnormal, windows[0][0], windows[1][1])
    if not total:
        raise DataError(f"{pack}: no telemetry is within the windows of {ENVIRONMENT}; leave the datapack out")
    for stage, times, count in zip(STAGES, (normal, abnormal), inside, strict=True):
        if count < _MIN_INSIDE * len(times):
            raise DataError(
                f"{pack}: {count} of {len(times)} rows of the {stage} telemetry are in the {stage} window of "
                f"{ENVIRONMENT}; correct its times or leave the datapack out"
            )
    return DatapackWindows(
        start_ns=start + shift, onset_ns=onset + shift, end_ns=end + shift, shift_ns=shift, outside=rows - total
    )


def _zone_offset(offset_ns: int) -> int:
    """Return an offset rounded to quarters of an hour, or 0 if it is not close to one.

    Examples
    --------
    >>> [_zone_offset(minutes * 60 * 10**9) // (60 * 10**9) for minutes in (480, -344.5, 7, 8, 0.5)]
    [480, -345, 0, 0, 0]
    """
    whole = round(offset_ns / _QUARTER_NS) * _QUARTER_NS
    return whole if abs(offset_ns - whole) <= _TOLERANCE_NS else 0


def stage_files(pack: Path, kind: str) -> list[Path]:
    """Return the existing files of a kind, normal before abnormal."""
    return [path for stage in STAGES if (path := pack / f"{stage}_{kind}.parquet").is_file()]


def clock_of(names: Sequence[str]) -> str | None:
    """Return the name of the time column of a raw or converted file."""
    return next((clock for clock in CLOCKS if clock in names), None)


def stamps_ns(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a time column as UTC nanoseconds; the magnitude of numbers determines their unit."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64())
    filled = column.fill_null(0)
    return pa.chunked_array([pa.array(epoch_ns(filled.to_numpy()), mask=column.is_null().to_numpy())])


def _stage_times(pack: Path, stage: str) -> Ints:
    """Return the times of all rows in the files of a window."""
    times = [np.zeros(0, dtype=np.int64)]
    for kind in KINDS:
        path = pack / f"{stage}_{kind}.parquet"
        if not path.is_file():
            continue
        table = read_parquet(path, CLOCKS)
        clock = clock_of(table.column_names)
        if clock is not None and len(table):
            times.append(np.asarray(stamps_ns(table[clock]).drop_null().to_numpy(), dtype=np.int64))
    return np.concatenate(times)


def _find_extent(times_ns: Ints) -> tuple[int, int]:
    """Return the first and last time without stray rows."""
    low = int(np.quantile(times_ns, _STRAY_SHARE, method="higher"))
    high = int(np.quantile(times_ns, 1 - _STRAY_SHARE, method="lower"))
    margin = _STRAY_DISTANCE * (high - low)
    near = times_ns[(times_ns >= low - margin) & (times_ns <= high + margin)]
    return int(near.min()), int(near.max())


def _count_inside(times_ns: Ints, start_ns: int, end_ns: int) -> int:
    return int(np.count_nonzero((times_ns >= start_ns) & (times_ns < end_ns)))


def case_key(pack: Path) -> str:
    """Return the name of a datapack, after the name of its dataset if it has one."""
    dataset = pack.parent
    return f"{dataset.name}/{pack.name}" if dataset.parent.name == "data" else pack.name


FAULTS = (
    "PodKill", "PodFailure", "ContainerKill", "MemoryStress", "CPUStress", "HTTPRequestAbort", "HTTPResponseAbort",
    "HTTPRequestDelay", "HTTPResponseDelay", "HTTPResponseReplaceBody", "HTTPResponsePatchBody",
    "HTTPRequestReplacePath", "HTTPRequestReplaceMethod", "HTTPResponseReplaceCode", "DNSError", "DNSRandom",
    "TimeSkew", "NetworkDelay", "NetworkLoss", "NetworkDuplicate", "NetworkCorrupt", "NetworkBandwidth",
    "NetworkPartition", "JVMLatency", "JVMReturn", "JVMException", "JVMGarbageCollector", "JVMCPUStress",
    "JVMMemoryStress", "JVMMySQLLatency", "JVMMySQLException",
)  # fmt: skip
"""Fault types of the old format by number."""

_LEVELS = (
    ("PodKill", "Virtualization", "Operation Error"),
    ("PodFailure", "Virtualization", "Operation Error"),
    ("ContainerKill", "Operating System", "Operation Error"),
    ("Network", "Operating System", "Network/Storage Issue"),
    ("DNS", "Operating System", "Network/Storage Issue"),
    ("MemoryStress", "Operating System", None),
    ("CPUStress", "Operating System", None),
    ("TimeSkew", "Operating System", None),
    ("HTTP", "Application", None),
    ("JVM", "Application", None),
)
"""Prefix of a fault's name, system level, and fault type; if the type is None, the fault's name is used."""
_HOUR_NS = 3_600 * SECOND_NS
_NEAR_NS = 900 * SECOND_NS


def label_of(pack: Path, key: str, windows: DatapackWindows) -> dict[str, Any]:
    """Return the label of a datapack; raise DataError if it lacks the fault or the service."""
    path = pack / INJECTION
    record = read_json(path)
    if not isinstance(record, Mapping):
        raise DataError(f"{path} must hold an object; restore it or leave the datapack out")
    faults = list(dict.fromkeys(_list_faults(record, path)))
    causes = _list_causes(record, path)
    level, kind = _find_level(faults[0])
    end_ns = _parse_instant(record.get("end_time"))
    parameters: dict[str, Any] = {"case": key}
    for name in ("engine_config", "display_config"):
        if name in record:
            parameters[name] = _parse_json(record[name])
    if end_ns is not None:
        parameters["fault_end_ns"] = _remove_zone_hours(end_ns, windows.end_ns)
    return {
        "fault": join_distinct(faults),
        "targets": list(dict.fromkeys(cause["service"] for cause in causes)),
        "root_causes": causes,
        "faults": _faults_by_target(record, {cause["service"] for cause in causes}),
        "system_level": level,
        "fault_type": kind,
        "inject_start": onset_of(record, windows),
        "parameters": canonical_json(parameters),
        "verdict": "manifest" if _was_noticed(pack) else "unknown",
    }


def onset_of(record: Mapping[str, Any], windows: DatapackWindows) -> int:
    """Return the start of the injection, or of the abnormal window if the injection is unknown or outside the view."""
    start_ns = _parse_instant(record.get("start_time"))
    if start_ns is None:
        return windows.onset_ns
    moved = _remove_zone_hours(start_ns, windows.onset_ns)
    return moved if windows.start_ns < moved < windows.end_ns else windows.onset_ns


def _remove_zone_hours(instant: int, expected: int) -> int:
    """Remove whole hours that a time zone may have added, if the rest is within 15 minutes of the expected time."""
    moved = instant - round((instant - expected) / _HOUR_NS) * _HOUR_NS
    return moved if abs(moved - expected) <= _NEAR_NS else instant


def _parse_instant(value: Any) -> int | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return int(epoch_ns([value])[0])
    if not isinstance(value, str) or not value:
        return None
    try:
        when = datetime.fromisoformat(value)
    except ValueError:
        return None
    when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    whole = int(when.timestamp() // 1)
    return whole * SECOND_NS + when.microsecond * 1_000


def _parse_json(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _list_leaves(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    config = _parse_json(record.get("engine_config"))
    leaves = config if isinstance(config, list) else [config]
    return [leaf for leaf in leaves if isinstance(leaf, Mapping)]


def _faults_by_target(record: Mapping[str, Any], targets: set[str]) -> list[dict[str, Any]] | None:
    """Return every fault with its target, or None if the datapack does not relate them."""
    faults = {str(leaf.get("app")): str(leaf["chaos_type"]) for leaf in _list_leaves(record) if leaf.get("chaos_type")}
    if faults.keys() != targets or len(faults) != len(_list_leaves(record)):
        return None
    return [
        {"fault": fault, "target": target, "system_level": level, "fault_type": kind, "parameters": {}}
        for target, fault in faults.items()
        for level, kind in [_find_level(fault)]
    ]


def _list_faults(record: Mapping[str, Any], path: Path) -> Iterator[str]:
    names = [str(leaf["chaos_type"]) for leaf in _list_leaves(record) if leaf.get("chaos_type")]
    if names:
        yield from names
        return
    kind = record.get("fault_type")
    if isinstance(kind, str) and kind.strip() and not kind.strip().isdigit():
        yield kind.strip()
        return
    try:
        number = int(kind)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise DataError(f"{path} must name a fault; restore it or leave the datapack out") from None
    if not 0 <= number < len(FAULTS):
        raise DataError(
            f"{path} has fault type {number}, but it must be 0 to {len(FAULTS) - 1}; leave the datapack out"
        )
    yield FAULTS[number]


def _list_causes(record: Mapping[str, Any], path: Path) -> list[dict[str, Any]]:
    content = _parse_json(record.get("ground_truth"))
    truths = content if isinstance(content, list) else [content]
    causes = [cause for truth in truths if isinstance(truth, Mapping) for cause in _causes_in(truth)]
    if not causes:
        causes = [build_cause(name) for name in dict.fromkeys(_list_targets(record))]
    if not causes:
        raise DataError(f"{path} must name a faulty service; restore it or leave the datapack out")
    return causes


def _causes_in(truth: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    services = [str(name) for name in truth.get("service") or () if name]
    metrics = [str(name) for name in truth.get("metric") or () if name]
    for service in services:
        yield build_cause(service, metric=metrics[0] if len(metrics) == 1 and len(services) == 1 else None)
    if len(services) == 1:
        for kind, field in (("Pod", "pod"), ("Container", "container")):
            for name in truth.get(field) or ():
                yield build_cause(services[0], kind=kind, name=str(name))


def _list_targets(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the services of the injection; direction `from` swaps source and target."""
    display = _parse_json(record.get("display_config"))
    points: list[tuple[Mapping[str, Any], Any]] = [(leaf, leaf.get("direction")) for leaf in _list_leaves(record)]
    if isinstance(display, Mapping) and isinstance(display.get("injection_point"), Mapping):
        points.append((display["injection_point"], display.get("direction")))
    for point, direction in points:
        source = point.get("source_service") or point.get("app_name") or point.get("app")
        name = point.get("target_service") if direction == "from" and point.get("target_service") else source
        if name:
            yield str(name)


def _find_level(fault: str) -> tuple[str | None, str]:
    for prefix, level, kind in _LEVELS:
        if fault.startswith(prefix):
            return level, kind or fault
    return None, fault


def _was_noticed(pack: Path) -> bool:
    """Return whether rcabench's detector found issues that clients noticed."""
    path = pack / CONCLUSION
    if not path.is_file():
        return False
    issues: Sequence[Any] = read_parquet(path, ["Issues"]).to_pydict().get("Issues", [])
    return any(issue not in (None, "", "{}") for issue in issues)
