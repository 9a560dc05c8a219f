"""Recognise the format of data and look for issues without importing it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from faultset.core.errors import DataError
from faultset.core.output import Progress, StepCounter
from faultset.core.printable import count_text
from faultset.core.processes import scratch
from faultset.core.times import rfc3339
from faultset.datasets.checks.telemetry import find_common_gap
from faultset.datasets.format.schemas import time_column
from faultset.datasets.format.version_files import VERSIONS
from faultset.datasets.imports.contract import (
    EMPTY_VIEW,
    Case,
    DataIssue,
    ForeignChunk,
    ForeignEpisode,
    ForeignRecording,
    ImportFormat,
    choose_input,
    collect_issues,
    count_inputs,
    describe_nearest,
    find_formats,
    format_names,
    reading,
)

_MAX_SERVICES = 12
"""Maximum number of listed services."""


@dataclass(frozen=True, kw_only=True)
class Examination:
    """Format and issues of the data at a path."""

    format: str
    """Name of the format; `faultset` for our own datasets."""
    cases: int
    """Number of cases, of files of telemetry, or of episodes in our own datasets."""
    summary: str
    """Content of the data in one line."""
    next: str
    """Command to run next."""
    data_issues: tuple[DataIssue, ...]
    """Issues, errors first."""


def examine(
    path: Path | str,
    *,
    display_name: str | None = None,
    input_file: str | None = None,
    progress: Progress | None = None,
) -> Examination:
    """Recognise the data at a path and look for issues; import nothing.

    Parameters
    ----------
    path
        Folder or file.
    display_name
        Name of our own dataset in messages; its path by default.
    input_file
        Name of the file to read, for cases with alternative input files.
    progress
        Called with the number of finished cases and the total; for plain telemetry, with megabytes.

    Raises
    ------
    DataError
        The path does not exist or its format is unknown.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path} does not exist; give a folder of data")
    if (path / VERSIONS).is_dir():
        return _examine_dataset(path, display_name or str(path))
    importers = find_formats(path)
    if not importers:
        return _examine_telemetry(path, progress)
    first = importers[0]
    with collect_issues() as issues:
        with reading(first, str(path)):
            cases = choose_input(first.cases(path), input_file, first.title)
        issues += [*_find_input_issues(cases), *_telemetry_issues(first, cases, progress)]
    others = f"It also looks like {', '.join(other.title for other in importers[1:])}." if len(importers) > 1 else ""
    count = f"{path} holds {count_text(len(cases), f'{first.title} case')}."
    summary = " ".join(filter(None, (count, _describe_inputs(cases), others)))
    option = f" --input {input_file}" if input_file else ""
    return Examination(
        format=first.name,
        cases=len(cases),
        summary=f"{summary}\n{first.weakness}".rstrip("\n"),
        next=f"faultset dataset import {first.name} {shlex.quote(str(path))} OUT{option}",
        data_issues=_group_issues(issues),
    )


def _describe_inputs(cases: Sequence[Case]) -> str:
    """Return a sentence on the chosen input files; empty if there are no alternatives."""
    counts = count_inputs(cases)
    if len(counts) < 2:
        return "".join(f"Input file: {name}." for name in counts)
    files = ", ".join(f"{name} ({count_text(count, 'case')})" for name, count in counts.items())
    return f"Input files: {files}."


def _find_input_issues(cases: Sequence[Case]) -> Iterator[DataIssue]:
    for case in cases:
        if len(case.candidates) > 1:
            problem = f"The case has several input files: {', '.join(sorted(case.candidates))}."
            handling = f"{case.candidates[0]} is read; --input FILE chooses another."
            yield DataIssue("warning", case.key, problem, handling)


def _examine_telemetry(path: Path, progress: Progress | None) -> Examination:
    """Read files of telemetry as an import would; raise DataError if nothing is recognised."""
    from faultset.datasets.imports.telemetry.reports import describe_formats, list_issues
    from faultset.datasets.imports.telemetry.run import examine_telemetry

    hint = describe_nearest(path)
    try:
        with scratch("doctor") as folder:
            report = examine_telemetry([path], folder=Path(folder) / "stage", progress=progress)
    except DataError as error:
        reason = f"As telemetry: {error}" if not hint else hint.removesuffix(".")
        raise DataError(
            f"{path} has none of the known formats ({', '.join(format_names())}). "
            f"Give the top folder of the unpacked data. {reason}"
        ) from error
    period = f"{rfc3339(report.start_ns)} to {rfc3339(report.end_ns)}"
    services = ", ".join(report.names.services[:_MAX_SERVICES])
    more = len(report.names.services) - _MAX_SERVICES
    lines = [
        f"{path} holds telemetry from {period}, of {len(report.names.services)} services: {services}"
        f"{f' and {more} more' if more > 0 else ''}.",
        *describe_formats(report.files),
        *([hint] if hint else []),
    ]
    return Examination(
        format="telemetry",
        cases=len(report.files),
        summary="\n".join(lines),
        next=f"faultset dataset import telemetry {shlex.quote(str(path))} OUT",
        data_issues=_group_issues(list_issues(report)),
    )


def _telemetry_issues(importer: ImportFormat, cases: Sequence[Case], progress: Progress | None) -> Iterator[DataIssue]:
    """Read all cases; yield an issue for each unreadable case and for gaps common to all metrics."""
    gaps: dict[str, str] = {}
    steps = StepCounter(len(cases), progress)
    for case in cases:
        try:
            with reading(importer, case.key):
                gap = _describe_common_gap(importer.load(case))
        except DataError as error:
            yield DataIssue("error", case.key, str(error), "The case cannot be imported.")
        else:
            if gap is not None:
                gaps[case.key] = gap
        steps.add()
    if gaps:
        first, gap = next(iter(gaps.items()))
        location = first if len(gaps) == 1 else f"{first} and {len(gaps) - 1} more"
        problem = f"No metric series has a sample for {gap}."
        yield DataIssue("warning", location, problem, "The gap is kept and does not count as a sign of a fault.")


def _describe_common_gap(foreign: ForeignEpisode | ForeignRecording) -> str | None:
    """Describe the longest gap of a case; raise DataError if all tables are empty."""
    if isinstance(foreign, ForeignRecording):
        chunks = foreign.chunks()
    else:
        chunks = [ForeignChunk(start_ns=foreign.view_start_ns, end_ns=foreign.view_end_ns, tables=foreign.tables)]
    times, bounds, has_others = [np.zeros(0, dtype=np.int64)], list[int](), False
    for chunk in chunks:
        bounds += [chunk.start_ns, chunk.end_ns]
        for table, batches in chunk.tables.items():
            if table == "metrics":
                times += [_read_times(piece, table) for piece in batches()]
            else:
                has_others = has_others or any(map(len, batches()))
    all_times = np.concatenate(times)
    if not len(all_times) and not has_others:
        raise DataError(EMPTY_VIEW)
    gap = find_common_gap(all_times, (bounds[0], bounds[-1]), foreign.source_intervals_s.get("metrics"))
    return None if gap is None else str(gap)


def _read_times(piece: pa.RecordBatch | pa.Table, table: str) -> np.ndarray:
    # A table accepts chunked and plain columns alike.
    return pa.table({"time": piece[time_column(table)]})["time"].cast(pa.int64()).unique().to_numpy()


def _group_issues(issues: Iterable[DataIssue]) -> tuple[DataIssue, ...]:
    """Return each issue once with its first location and the number of others, errors first."""
    locations: dict[DataIssue, list[str]] = {}
    for issue in issues:
        locations.setdefault(replace(issue, location=""), []).append(issue.location)
    order = ("error", "warning", "note")
    return tuple(
        replace(issue, location=names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more")
        for issue, names in sorted(locations.items(), key=lambda item: order.index(item[0].severity))
    )


def _examine_dataset(path: Path, name: str) -> Examination:
    from faultset.datasets.checks.telemetry import reference_messages
    from faultset.datasets.dataset import Dataset
    from faultset.datasets.format.versions import read_version

    version_file = read_version(path)
    dataset = Dataset(path, version_file)
    messages = reference_messages({episode: dataset.view(episode) for episode in version_file.episodes})
    origin = version_file.provenance.get("import")
    source = f", imported from {origin['title']} data" if isinstance(origin, dict) and "title" in origin else ""
    count = len(version_file.episodes)
    return Examination(
        format="faultset",
        cases=count,
        summary=(
            f"{name} is a faultset dataset{source}: version {version_file.version}, {count_text(count, 'episode')}. "
            "There is nothing to import."
        ),
        next=f"faultset dataset verify {shlex.quote(name)}",
        data_issues=tuple(
            DataIssue("warning", name, message, 'Such methods answer "cannot", which counts as a miss.')
            for message in messages
        ),
    )
