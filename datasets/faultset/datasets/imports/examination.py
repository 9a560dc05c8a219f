"""Which format a folder of data has, and which data issues."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from faultset.core.command_line.progress import Progress, StepCounter
from faultset.core.errors import DataError
from faultset.datasets.checks.telemetry import find_common_gap
from faultset.datasets.format.manifests import VERSIONS
from faultset.datasets.format.schemas import time_column
from faultset.datasets.imports.contract import (
    Case,
    DataIssue,
    ForeignEpisode,
    ImportFormat,
    choose_input,
    collect_issues,
    describe_inputs,
    input_issues,
)
from faultset.datasets.imports.registry import describe_nearest, format_names, reading, recognised
from faultset.datasets.imports.windows import EMPTY_VIEW


@dataclass(frozen=True, kw_only=True)
class Examination:
    """What was found at a path."""

    format: str
    """Name of the format; `faultset` for a dataset of ours."""
    cases: int
    """How many cases there are, or episodes of a dataset of ours."""
    summary: str
    """What the data holds, in one line."""
    next: str
    """Command to run next."""
    data_issues: tuple[DataIssue, ...]
    """What a reader should know before using the data."""


def examine(
    path: Path | str,
    *,
    display_name: str | None = None,
    input_file: str | None = None,
    progress: Progress | None = None,
) -> Examination:
    """Recognise the data at a path and look for what is unusual in it; import nothing.

    Parameters
    ----------
    path
        Folder or file.
    display_name
        How messages name a dataset of ours; its path by default.
    input_file
        Name of the file to read, for cases that have several with the same telemetry.
    progress
        Told how many cases are finished, and of how many.

    Raises
    ------
    DataError
        There is nothing, or data of no known format.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"there is nothing at {path}; give a folder of data")
    if (path / VERSIONS).is_dir():
        return _own(path, display_name or str(path))
    found = recognised(path)
    if not found:
        hint = describe_nearest(path)
        raise DataError(
            f"{path} is of no known format ({', '.join(format_names())}). {hint + ' ' if hint else ''}"
            "Give the folder that was unpacked"
        )
    first = found[0]
    with collect_issues() as issues:
        with reading(first, str(path)):
            cases = choose_input(first.cases(path), input_file, first.title)
        issues += [*input_issues(cases), *_telemetry_issues(first, cases, progress)]
    others = f"It also looks like {', '.join(one.title for one in found[1:])}." if len(found) > 1 else ""
    count = f"{path} holds {len(cases)} {first.title} {'case' if len(cases) == 1 else 'cases'}."
    summary = " ".join(filter(None, (count, describe_inputs(cases), others)))
    option = f" --input {input_file}" if input_file else ""
    return Examination(
        format=first.name,
        cases=len(cases),
        summary=f"{summary}\n{first.weakness}".rstrip("\n"),
        next=f"faultset dataset import {first.name} {shlex.quote(str(path))} OUT{option}",
        data_issues=_gathered(issues),
    )


def _telemetry_issues(importer: ImportFormat, cases: Sequence[Case], progress: Progress | None) -> Iterator[DataIssue]:
    """Read all cases; yield those that cannot be imported, and gaps common to all series of metrics."""
    gaps: dict[str, str] = {}
    steps = StepCounter(len(cases), progress)
    for case in cases:
        try:
            with reading(importer, case.key):
                gap = _common_gap(importer.load(case))
        except DataError as error:
            yield DataIssue(severity="error", place=case.key, found=str(error), handling="The case cannot be imported.")
        else:
            if gap is not None:
                gaps[case.key] = gap
        steps.add()
    if gaps:
        first, gap = next(iter(gaps.items()))
        yield DataIssue(
            severity="warning",
            place=first if len(gaps) == 1 else f"{first} and {len(gaps) - 1} more",
            found=f"No series of metrics has a sample for {gap}.",
            handling="The gap stays: the collector paused there, which is no sign of a fault.",
        )


def _common_gap(episode: ForeignEpisode) -> str | None:
    """Return the longest gap of an episode in words; DataError when no table has a row."""
    view = (episode.view_start_ns, episode.view_end_ns)
    pieces = [_times(piece, "metrics") for piece in episode.tables["metrics"]()] if "metrics" in episode.tables else []
    times = np.concatenate([np.zeros(0, dtype=np.int64), *pieces])
    others = (table for table in episode.tables if table != "metrics")
    if not len(times) and not any(len(piece) for table in others for piece in episode.tables[table]()):
        raise DataError(EMPTY_VIEW)
    gap = find_common_gap(times, view, episode.source_intervals_s.get("metrics"))
    return None if gap is None else str(gap)


def _times(piece: pa.RecordBatch | pa.Table, table: str) -> np.ndarray:
    # a table converts chunked and plain columns alike
    return pa.table({"time": piece[time_column(table)]})["time"].cast(pa.int64()).unique().to_numpy()


def _gathered(data_issues: Iterable[DataIssue]) -> tuple[DataIssue, ...]:
    """Say each thing once, with the first place and how many more there are; the gravest first."""
    places: dict[tuple[str, str, str], list[str]] = {}
    for issue in data_issues:
        places.setdefault((issue.severity, issue.found, issue.handling), []).append(issue.place)
    order = ("error", "warning", "note")
    return tuple(
        DataIssue(
            severity=severity,  # type: ignore[arg-type]
            place=where[0] if len(where) == 1 else f"{where[0]} and {len(where) - 1} more",
            found=found,
            handling=handling,
        )
        for (severity, found, handling), where in sorted(places.items(), key=lambda item: order.index(item[0][0]))
    )


def _own(path: Path, name: str) -> Examination:
    from faultset.datasets.checks.telemetry import reference_messages
    from faultset.datasets.dataset import Dataset
    from faultset.datasets.format.versions import read_manifest

    manifest = read_manifest(path)
    dataset = Dataset(path, manifest)
    messages = reference_messages({episode: dataset.view(episode) for episode in manifest.episodes})
    origin = manifest.provenance.get("import")
    source = f", imported from {origin['title']} data" if isinstance(origin, dict) and "title" in origin else ""
    count = len(manifest.episodes)
    return Examination(
        format="faultset",
        cases=count,
        summary=(
            f"{name} is a dataset of faultset{source}: version {manifest.version}, {count} episodes. "
            "There is nothing to import."
        ),
        next=f"faultset dataset verify {shlex.quote(name)}",
        data_issues=tuple(
            DataIssue(
                severity="warning",
                place=name,
                found=message,
                handling='Such methods answer "cannot", which counts as a miss.',
            )
            for message in messages
        ),
    )
