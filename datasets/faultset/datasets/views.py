"""The view of an episode, the input of methods: context and telemetry without the truth."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from faultset.core.errors import DataError
from faultset.core.regular_files import FileStamp
from faultset.core.times import step_seconds
from faultset.datasets.format.context import EpisodeContext, read_context
from faultset.datasets.format.episodes import TELEMETRY, table_file
from faultset.datasets.format.labels import AlarmLocation
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.metrics.roles import Catalogue, catalogue_with, parse_roles
from faultset.datasets.table_reading import Filters, read_columns, read_pieces, read_samples, schema_of

if TYPE_CHECKING:
    import pandas as pd


class EpisodeView:
    """The context and telemetry of one episode.

    A view opens only `context.json`, the files under `telemetry/` and frames computed from them
    (`faultset.datasets.cache`). It holds no data: its pickle has a few hundred bytes, and it reads on
    demand.

    Parameters
    ----------
    path
        Episode folder, `DATASET/episodes/<id>`.
    alarm_location
        Service and metric of the alarm, which are part of the truth and therefore not read here.
    """

    _alarm_location: AlarmLocation | None = None

    def __init__(self, path: Path | str, *, alarm_location: AlarmLocation | None = None) -> None:
        self._folder = Path(path)
        self._alarm_location = alarm_location
        self._context = read_context(self._folder)

    def __repr__(self) -> str:
        return f"EpisodeView({self.episode!r})"

    @property
    def context(self) -> EpisodeContext:
        """Facts about the episode."""
        return self._context

    @property
    def episode(self) -> str:
        """Opaque id."""
        return self._context.episode

    @property
    def services(self) -> tuple[str, ...]:
        """All services, including faulty ones."""
        return self._context.services

    @property
    def calls(self) -> tuple[tuple[str, str], ...]:
        """Declared call graph as (caller, callee)."""
        return self._context.calls

    @property
    def window(self) -> tuple[int, int]:
        """Half-open window of all telemetry, UTC nanoseconds."""
        return self._context.view_start_ns, self._context.view_end_ns

    @property
    def reference(self) -> tuple[int, int]:
        """Half-open healthy window, UTC nanoseconds."""
        return self._context.view_start_ns, self._context.reference_end_ns

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the result of `make`, which must not be modified.

        A view that several methods share caches the result by `key`; this class does not.
        """
        return make()

    def note_skipped_series(self, series: Iterable[tuple[str, str]], *, comparable: bool = True) -> None:
        """Record the (service, metric) of series that a method skips; has no effect outside an evaluation.

        Parameters
        ----------
        comparable
            Whether the other series have at least two healthy samples to compare with.
        """

    @property
    def file_stamps(self) -> Hashable:
        """Identity of the episode's files: equal for two views unless a file has changed in between.

        Raises
        ------
        DataError
            A file is missing.
        """
        folder = self._folder / TELEMETRY
        stamps = tuple(FileStamp.of(self._folder / table_file(name), folder) for name in self.tables)
        state = folder.stat()
        return type(self), state.st_dev, state.st_ino, stamps

    def silent_steps(self, step_ns: int) -> npt.NDArray[np.bool_]:
        """Return which steps of the view have neither metrics, spans nor logs, because the collector did not run.

        An episode without metrics has no such steps. Methods need not declare the tables, since no content of them is
        returned.

        Parameters
        ----------
        step_ns
            Length of a step in nanoseconds; the first step starts with the view.
        """
        return self.once(("silent steps", step_ns), lambda: self._silent_steps(step_ns))

    def _silent_steps(self, step_ns: int) -> npt.NDArray[np.bool_]:
        start_ns, end_ns = self._context.view_start_ns, self._context.view_end_ns
        silent = np.ones(-(-(end_ns - start_ns) // step_ns), dtype=bool)
        for name in ("metrics", "spans", "logs"):
            if not (self._folder / table_file(name)).exists():
                continue
            # a subclass may hide tables, but the times of their rows still count
            for (column,) in EpisodeView.pieces(self, name, "time"):
                times = column.cast(pa.int64()).to_numpy()
                inside = times[(times >= start_ns) & (times < end_ns)]
                silent[(inside - start_ns) // step_ns] = False
            if name == "metrics" and silent.all():
                break
        return np.zeros_like(silent) if silent.all() else silent

    @property
    def alarm_location(self) -> AlarmLocation | None:
        """Service and metric of the alarm; only for methods that declare `needs = {"alarm_location"}`.

        None for all other methods, if the source of the data does not name the service and the metric, or if a detector
        raised the alarm.
        """
        return self._alarm_location

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of all tables: first the standard ones, then those added by sources."""
        return tuple(self._context.tables)

    @property
    def catalogue(self) -> Catalogue:
        """Metric roles of the episode, then the built-in ones."""
        return catalogue_with(self._context.metric_roles)

    def table(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        filters: Filters = None,
    ) -> pa.Table:
        """Read one table, or some of its columns and rows.

        Parameters
        ----------
        name
            metrics, spans, logs, events, objects, requests, or an added table; see `tables`.
        columns
            Columns to read; all by default.
        filters
            As for `pyarrow.parquet.read_table`, for instance `[("metric", "in", ["up"])]`.

        Raises
        ------
        UsageError
            The table or column does not exist.
        DataError
            The file is missing or damaged.
        """
        return read_columns(self._folder, name, self._schema(name), columns, filters)

    def pieces(self, name: str, *columns: str) -> Iterator[tuple[pa.ChunkedArray, ...]]:
        """Yield columns of a table in pieces, for readers that may stop early."""
        yield from read_pieces(self._folder, name, self._schema(name), columns)

    def metrics(self) -> pd.DataFrame:
        """Return all raw metric samples."""
        return self._frame("metrics")

    def spans(self) -> pd.DataFrame:
        """Return all spans."""
        return self._frame("spans")

    def logs(self) -> pd.DataFrame:
        """Return all log lines."""
        return self._frame("logs")

    def events(self) -> pd.DataFrame:
        """Return all Kubernetes events."""
        return self._frame("events")

    def objects(self) -> pd.DataFrame:
        """Return all observed states of Kubernetes objects."""
        return self._frame("objects")

    def requests(self) -> pd.DataFrame:
        """Return the results of the load's requests; only for methods that declare `needs = {"sli"}`."""
        return self._frame("requests")

    def wide(self, step_s: float | str = 1.0, roles: Iterable[str] | None = None) -> pd.DataFrame:
        """Return metrics as levels and per-second rates on a regular grid over the view.

        `faultset.datasets.metrics.frames.wide_frame` describes the conversion of counters, gauges and histograms.

        Parameters
        ----------
        step_s
            Length of a step in seconds, or text such as "1s" or "500ms".
        roles
            Only columns with these roles (`faultset.datasets.metrics.roles.ROLES`).

        Returns
        -------
        pandas.DataFrame
            [T, D] one row per step, indexed by the start of the step in UTC; one column per (service, metric); NaN
            where a step has no sample.

        Raises
        ------
        UsageError
            A role is unknown, or the step is too short or too long.
        DataError
            The file of metrics is missing or damaged.
        """
        from faultset.datasets.metrics.frames import cached_frame, frame_facts

        chosen = None if roles is None else parse_roles(roles)
        seconds = step_seconds(step_s)
        facts = frame_facts(self._context, seconds, chosen)
        return cached_frame(self._folder, facts, lambda: self._make_wide(seconds, chosen))

    def _make_wide(self, step_s: float, chosen: frozenset[str] | None) -> pd.DataFrame:
        from faultset.datasets.metrics.frames import wide_frame

        catalogue = self.catalogue
        frame = wide_frame(read_samples(self._folder, chosen, catalogue), *self.window, step_s, catalogue=catalogue)
        if chosen is None:
            return frame
        selected = [catalogue.role_of(metric) in chosen for metric in frame.columns.get_level_values("metric")]
        return frame.loc[:, selected]

    def _schema(self, name: str) -> pa.Schema:
        return schema_of(name, self._context.tables)

    def _frame(self, name: str) -> pd.DataFrame:
        return self.table(name).unify_dictionaries().to_pandas()


def read_table(episode: EpisodeView, name: str, columns: Sequence[str], filters: Any = None) -> pa.Table:
    """Read columns of a table, optionally filtered; a missing table is empty, a damaged one raises DataError."""
    try:
        return episode.table(name, columns, filters)
    except DataError as error:
        if not isinstance(error.__context__, FileNotFoundError):
            raise
    schema = TABLES[name]
    return schema.empty_table().select(list(columns))


def read_frame(episode: EpisodeView, name: str, columns: Sequence[str], filters: Any = None) -> pd.DataFrame:
    """Read columns of a table as a frame sorted by time; `time` and `scheduled` become UTC nanoseconds."""
    table = read_table(episode, name, columns, filters)
    frame = table.unify_dictionaries().to_pandas()
    for column in ("time", "scheduled"):
        if column in frame:
            frame[column] = frame[column].astype("int64")
            frame = frame.sort_values(column, kind="stable", ignore_index=True)
    return frame


def read_wide(episode: EpisodeView, step_s: float) -> pd.DataFrame:
    """Return `EpisodeView.wide` [T, D], or an empty frame if the episode has no metrics."""
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
