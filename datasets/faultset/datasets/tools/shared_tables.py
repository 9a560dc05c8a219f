"""The whole tables of an episode, read once for everybody who asks about it at the same time."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from faultset.core.errors import DataError
from faultset.datasets.format.schemas import time_column
from faultset.datasets.log_masks import masked_column
from faultset.datasets.views import EpisodeView

if TYPE_CHECKING:
    import pandas as pd

_LONGEST_PATTERN = 200
_METRIC_COLUMNS = ["time", "service", "pod", "container", "metric", "labels", "kind", "value"]


class SharedTables:
    """What sessions about one episode have in common, whatever time it is in each of them. Nobody may change it.

    Parameters
    ----------
    view
        The episode without its truth.
    """

    def __init__(self, view: EpisodeView) -> None:
        self._view = view
        self._lock = threading.RLock()
        self._made: dict[tuple[str, str], Any] = {}

    def table(self, name: str) -> tuple[pa.Table, np.ndarray]:
        """Return all rows of a table without the episode's id, and their times in UTC nanoseconds; no metrics."""
        return self._once(("table", name), lambda: self._read(name))

    @property
    def log_patterns(self) -> pa.Array:
        """Every log line with its numbers masked, as a dictionary array."""
        return self._once(("logs", "patterns"), self._masked)

    @property
    def series(self) -> dict[str, tuple[str, ...]]:
        """Metric -> services that have it."""
        return self._once(("metrics", "series"), self._listed)

    @property
    def object_rows(self) -> list[dict[str, Any]]:
        """Every observed state of an object: time_ns, kind, name, service, state and data."""
        return self._once(("objects", "rows"), self._states)

    def metric(self, name: str) -> pd.DataFrame:
        """Return all samples of one metric with few series, with times as integers."""
        return self._once(("metric", name), lambda: self.metric_samples([("metric", "=", name)]))

    def metric_samples(self, filters: list[Any]) -> pd.DataFrame:
        """Return samples, with times as integers; they are read each time."""
        frame = self._view.table("metrics", _METRIC_COLUMNS, filters).unify_dictionaries().to_pandas()
        return frame.assign(time=frame["time"].astype("int64"))

    def _once(self, key: tuple[str, str], make: Callable[[], Any]) -> Any:
        with self._lock:
            if key not in self._made:
                self._made[key] = make()
            return self._made[key]

    def _read(self, name: str) -> tuple[pa.Table, np.ndarray]:
        rows = self._view.table(name).drop_columns(["episode"]).unify_dictionaries().combine_chunks()
        return rows, rows[time_column(name)].cast(pa.int64()).to_numpy()

    def _masked(self) -> pa.Array:
        texts = pc.utf8_slice_codeunits(self.table("logs")[0]["message"], 0, _LONGEST_PATTERN)  # type: ignore[attr-defined]
        return masked_column(texts).combine_chunks().dictionary_encode()

    def _listed(self) -> dict[str, tuple[str, ...]]:
        rows = self._view.table("metrics", ["metric", "service"])
        pairs = rows.group_by(["metric", "service"]).aggregate([]).to_pylist()
        found: dict[str, set[str]] = {}
        for pair in pairs:
            found.setdefault(pair["metric"], set()).update(() if pair["service"] is None else (pair["service"],))
        return {metric: tuple(sorted(services)) for metric, services in sorted(found.items())}

    def _states(self) -> list[dict[str, Any]]:
        rows, times = self.table("objects")
        columns = {name: rows[name].to_pylist() for name in ("kind", "name", "service", "state", "data")}
        return [
            {"time_ns": int(time), **{name: column[i] for name, column in columns.items()}}
            for i, time in enumerate(times)
        ]


_shared: weakref.WeakValueDictionary[Hashable, SharedTables] = weakref.WeakValueDictionary()
_sharing = threading.Lock()


def shared_tables(view: EpisodeView) -> SharedTables:
    """Return the tables that others hold of the same, unchanged files; they go when the last of them does."""
    try:
        files = view.file_stamps
    except (DataError, OSError):
        # who reads the table is told what is wrong with it
        return SharedTables(view)
    with _sharing:
        found = _shared.get(files)
        if found is None:
            found = _shared[files] = SharedTables(view)
        return found
