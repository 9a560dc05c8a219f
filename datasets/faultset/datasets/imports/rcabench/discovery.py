"""Where datapacks are, and when they say that their windows were."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.columns import Ints, epoch_ns, read_parquet
from faultset.datasets.imports.contract import Case

STAGES = ("normal", "abnormal")
KINDS = ("metrics", "metrics_sum", "metrics_histogram", "traces", "logs")
CLOCKS = ("time", "TimeUnix", "Timestamp")
ENVIRONMENT = "env.json"
INJECTION = "injection.json"
CONCLUSION = "conclusion.parquet"
INVALID = ".invalid"
_MARKS = tuple(f"{stage}_{kind}.parquet" for stage in STAGES for kind in ("metrics", "traces", "logs"))
_DEEPEST = 6
_QUARTER_NS = 900 * SECOND_NS
"""Offsets of time zones are multiples of a quarter of an hour."""
_TOLERANCE_NS = 60 * SECOND_NS
"""Telemetry may begin so long after or before its window; metrics may come once a minute."""
_STRAY_SHARE = 0.01
"""Part of the rows, at either end, that may be stray."""
_STRAY_DISTANCE = 0.1
"""Rows are stray that are farther from all others than this part of the time that the others cover."""
_FEWEST_INSIDE = 0.5
"""Part of the rows of a stage that must lie in its window."""


@dataclass(frozen=True, kw_only=True)
class DatapackWindows:
    """When a datapack's two windows are, in UTC nanoseconds, and what its telemetry says about its own words."""

    start_ns: int
    onset_ns: int
    end_ns: int
    shift_ns: int
    """What had to be added to the times in `env.json`: a wrong time zone moves them by whole quarters of an hour."""
    outside: int = 0
    """Rows that lie outside the windows and are left out."""


def datapacks(path: Path) -> Iterator[Path]:
    """Yield every folder that has a datapack's files; sorted, only as deep as datapacks can lie."""
    root = path.resolve() if path.is_dir() else path
    # Converted datapacks are often links to the raw ones.
    for folder, inner, files in os.walk(root, followlinks=True):
        here = Path(folder)
        if is_datapack(files):
            inner.clear()
            yield here
        inner.sort()
        if len(here.relative_to(root).parts) >= _DEEPEST:
            inner.clear()


def is_datapack(files: Collection[str]) -> bool:
    """Say whether the names of files are those of a datapack."""
    return any(name in files for name in _MARKS) and (INJECTION in files or ENVIRONMENT in files)


def found_cases(path: Path) -> Sequence[Case]:
    """Return all datapacks that are not marked invalid, sorted by name."""
    packs = [pack for pack in datapacks(path) if not (pack / INVALID).exists()]
    if not packs:
        raise DataError(
            f"{path} holds no valid datapack: a folder with {ENVIRONMENT}, {INJECTION} and files such as "
            f"{_MARKS[0]}; give the folder that was unpacked"
        )
    cases = [Case(key=case_key(pack), paths=(pack,), has_fault=True) for pack in packs]
    return sorted(cases, key=lambda case: case.key)


def read_json(path: Path) -> Any:
    """Read a JSON file; raise DataError that names it when it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise DataError(f"{path} is missing; restore it or leave the datapack out") from None
    except ValueError as error:
        raise DataError(f"{path} is no JSON ({error}); restore it or leave the datapack out") from None


def windows_of(pack: Path) -> DatapackWindows:
    """Return a datapack's windows: as its environment says, moved by the offset of a time zone where one is missing.

    Raises
    ------
    DataError
        The environment cannot be read, or the telemetry does not lie in the windows.
    """
    normal, abnormal = _stage_times(pack, "normal"), _stage_times(pack, "abnormal")
    if not len(normal) and not len(abnormal):
        raise DataError(f"{pack} has no telemetry; leave the datapack out")
    environment = read_json(pack / ENVIRONMENT) if (pack / ENVIRONMENT).is_file() else {}
    names = ("NORMAL_START", "ABNORMAL_START", "ABNORMAL_END")
    try:
        said = [int(epoch_ns([float(environment[name])])[0]) for name in names]
    except KeyError:
        if not len(normal) or not len(abnormal):
            raise DataError(
                f"{pack / ENVIRONMENT} does not say when the windows were, and one of them has no telemetry; "
                "leave the datapack out"
            ) from None
        (start, _), (onset, last) = _extent(normal), _extent(abnormal)
        return DatapackWindows(start_ns=start, onset_ns=onset, end_ns=last + 1, shift_ns=0)
    except (TypeError, ValueError):
        raise DataError(f"{pack / ENVIRONMENT} must hold {', '.join(names)} as seconds since 1970") from None
    start, onset, end = said
    if not start < onset < end:
        raise DataError(f"{pack / ENVIRONMENT}: {', '.join(names)} are not in this order; leave the datapack out")
    shift = _zone_offset(_extent(normal)[0] - start if len(normal) else _extent(abnormal)[0] - onset)
    windows = (start + shift, onset + shift), (onset + shift, end + shift)
    inside = [_rows_inside(times, *window) for times, window in zip((normal, abnormal), windows, strict=True)]
    rows = len(normal) + len(abnormal)
    total = _rows_inside(normal, windows[0][0], windows[1][1]) + _rows_inside(abnormal, windows[0][0], windows[1][1])
    if not total:
        raise DataError(f"{pack}: none of the telemetry lies in the windows of {ENVIRONMENT}; leave the datapack out")
    for stage, times, count in zip(STAGES, (normal, abnormal), inside, strict=True):
        if count < _FEWEST_INSIDE * len(times):
            raise DataError(
                f"{pack}: {count} of {len(times)} rows of the {stage} telemetry lie in the {stage} window of "
                f"{ENVIRONMENT}; correct its times or leave the datapack out"
            )
    return DatapackWindows(
        start_ns=start + shift, onset_ns=onset + shift, end_ns=end + shift, shift_ns=shift, outside=rows - total
    )


def _zone_offset(offset_ns: int) -> int:
    """Return an offset as whole quarters of an hour, 0 where it is none.

    Examples
    --------
    >>> [_zone_offset(minutes * 60 * 10**9) // (60 * 10**9) for minutes in (480, -344.5, 7, 8, 0.5)]
    [480, -345, 0, 0, 0]
    """
    whole = round(offset_ns / _QUARTER_NS) * _QUARTER_NS
    return whole if abs(offset_ns - whole) <= _TOLERANCE_NS else 0


def stage_files(pack: Path, kind: str) -> list[Path]:
    """Return the files of one kind that a datapack has, normal before abnormal."""
    return [path for stage in STAGES if (path := pack / f"{stage}_{kind}.parquet").is_file()]


def clock_of(names: Sequence[str]) -> str | None:
    """Return the column with the time; raw and converted files call it differently."""
    return next((clock for clock in CLOCKS if clock in names), None)


def stamps_ns(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a time column as UTC nanoseconds; numbers are epochs of the unit that their size tells."""
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


def _extent(times_ns: Ints) -> tuple[int, int]:
    """Return the first and the last time that is not stray."""
    low = int(np.quantile(times_ns, _STRAY_SHARE, method="higher"))
    high = int(np.quantile(times_ns, 1 - _STRAY_SHARE, method="lower"))
    margin = _STRAY_DISTANCE * (high - low)
    near = times_ns[(times_ns >= low - margin) & (times_ns <= high + margin)]
    return int(near.min()), int(near.max())


def _rows_inside(times_ns: Ints, start_ns: int, end_ns: int) -> int:
    return int(np.count_nonzero((times_ns >= start_ns) & (times_ns < end_ns)))


def case_key(pack: Path) -> str:
    """Return the name of a datapack, after that of its dataset where it lies in one."""
    dataset = pack.parent
    return f"{dataset.name}/{pack.name}" if dataset.parent.name == "data" else pack.name
