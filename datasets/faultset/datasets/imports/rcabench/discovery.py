"""Where datapacks are, and when they say that their windows were."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.columns import epoch_ns, read_parquet
from faultset.datasets.imports.contract import Case

pc: Any = pyarrow.compute
# Its functions are made at import, where type checkers do not see them.

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


@dataclass(frozen=True, kw_only=True)
class DatapackWindows:
    """When a datapack's two windows are, in UTC nanoseconds, and by how much its own words were wrong."""

    start_ns: int
    onset_ns: int
    end_ns: int
    shift_ns: int
    """What had to be added to the times in `env.json`: a wrong time zone in the database moves them by whole hours."""


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
    cases = [Case(key=_key(pack), paths=(pack,), has_fault=True) for pack in packs]
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
    """Return a datapack's windows: as its environment says, moved to where its telemetry is."""
    first, last = _extent(pack, "normal"), _extent(pack, "abnormal")
    measured = [extent for extent in (first, last) if extent is not None]
    if not measured:
        raise DataError(f"{pack} has no telemetry; leave the datapack out")
    environment = read_json(pack / ENVIRONMENT) if (pack / ENVIRONMENT).is_file() else {}
    names = ("NORMAL_START", "ABNORMAL_START", "ABNORMAL_END")
    try:
        said = [int(epoch_ns([float(environment[name])])[0]) for name in names]
    except KeyError:
        if first is None or last is None:
            raise DataError(
                f"{pack / ENVIRONMENT} does not say when the windows were, and one of them has no telemetry; "
                "leave the datapack out"
            ) from None
        return DatapackWindows(start_ns=first[0], onset_ns=last[0], end_ns=last[1] + 1, shift_ns=0)
    except (TypeError, ValueError):
        raise DataError(f"{pack / ENVIRONMENT} must hold {', '.join(names)} as seconds since 1970") from None
    start, onset, end = said
    offset = (first[0] - start) if first is not None else (measured[0][0] - onset)
    shift = round(offset / _QUARTER_NS) * _QUARTER_NS
    if not start < onset < end:
        raise DataError(f"{pack / ENVIRONMENT}: {', '.join(names)} are not in this order; leave the datapack out")
    return DatapackWindows(start_ns=start + shift, onset_ns=onset + shift, end_ns=end + shift, shift_ns=shift)


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


def _extent(pack: Path, stage: str) -> tuple[int, int] | None:
    """Return first and last time in the files of a window."""
    found = []
    for kind in KINDS:
        path = pack / f"{stage}_{kind}.parquet"
        if not path.is_file():
            continue
        table = read_parquet(path, CLOCKS)
        clock = clock_of(table.column_names)
        if clock is None or not len(table):
            continue
        span = pc.min_max(stamps_ns(table[clock])).as_py()
        if span["min"] is not None:
            found.append((span["min"], span["max"]))
    return (min(low for low, _ in found), max(high for _, high in found)) if found else None


def _key(pack: Path) -> str:
    dataset = pack.parent
    return f"{dataset.name}/{pack.name}" if dataset.parent.name == "data" else pack.name
