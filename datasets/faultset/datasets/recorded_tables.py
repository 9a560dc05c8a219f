"""Read tables of an episode; tables that an imported episode lacks are empty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from faultset.core.errors import DataError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from faultset.datasets.views import EpisodeView


def read_table(episode: EpisodeView, name: str, columns: Sequence[str], filters: Any = None) -> pa.Table:
    """Read columns of a table, optionally filtered; a missing table is empty, a damaged one raises DataError."""
    try:
        return episode.table(name, columns, filters)
    except DataError as error:
        if not isinstance(error.__context__, FileNotFoundError):
            raise
    from faultset.datasets.format.schemas import TABLES

    schema = TABLES[name]
    return schema.empty_table().select(list(columns))


def read_frame(episode: EpisodeView, name: str, columns: Sequence[str], filters: Any = None) -> pd.DataFrame:
    """Read columns of a table as a frame sorted by time, with times in UTC nanoseconds.

    Parameters
    ----------
    episode
        A view of an episode.
    name
        Name of the table; a missing one is empty.
    columns
        Columns to read; `time` and `scheduled` become integers.
    filters
        See `EpisodeView.table`; by default all rows are read.
    """
    table = read_table(episode, name, columns, filters)
    frame = table.unify_dictionaries().to_pandas()
    for column in ("time", "scheduled"):
        if column in frame:
            frame[column] = frame[column].astype("int64")
            frame = frame.sort_values(column, kind="stable", ignore_index=True)
    return frame


def read_wide(episode: EpisodeView, step_s: float) -> pd.DataFrame:
    """Return `EpisodeView.wide` [T, D], or an empty frame if the episode has no metrics.

    Parameters
    ----------
    episode
        A view of an episode.
    step_s
        Length of a step in seconds.
    """
    try:
        return episode.wide(step_s=step_s)
    except DataError as error:
        if not isinstance(error.__context__, FileNotFoundError):
            raise
    import pandas as pd

    return pd.DataFrame(
        index=pd.DatetimeIndex([], tz="UTC").as_unit("ns"),
        columns=pd.MultiIndex.from_tuples([], names=["service", "metric"]),
        dtype=float,
    )
