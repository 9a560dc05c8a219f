"""What the doctor tells of the telemetry of foreign cases, whatever their format."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa

from faultset.core.command_line.progress import Progress, StepCounter
from faultset.core.errors import DataError
from faultset.datasets.checks.gaps import find_common_gap
from faultset.datasets.format.schemas import time_column
from faultset.datasets.imports.contract import Case, DataIssue, ForeignEpisode, ImportFormat

EMPTY_VIEW = "none of the telemetry lies in the view"


def telemetry_issues(
    importer: ImportFormat, cases: Sequence[Case], refused: Collection[str], progress: Progress | None
) -> Iterator[DataIssue]:
    """Yield what cannot be imported, and gaps that all series of metrics have in common, once for all cases.

    Parameters
    ----------
    refused
        Places of errors that the format has reported itself.
    """
    gaps: dict[str, str] = {}
    steps = StepCounter(len(cases), progress)
    for case in cases:
        if case.key not in refused:
            try:
                gap = _common_gap(importer.load(case))
            except DataError as error:
                yield DataIssue(
                    severity="error", place=case.key, found=str(error), handling="The case cannot be imported."
                )
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
