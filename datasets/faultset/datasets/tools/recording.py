"""Read the tables of a view up to a clock's current time; sessions about the same episode share them."""

from __future__ import annotations

import functools
import json
import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from faultset.core.errors import DataError, UsageError
from faultset.core.times import rfc3339
from faultset.datasets.format.context import IMPORTED, EpisodeContext
from faultset.datasets.format.schemas import time_column
from faultset.datasets.kubectl.printing import ToolAnswer, answer_absent, answer_not_recorded
from faultset.datasets.log_masks import mask_column
from faultset.datasets.views import EpisodeView

if TYPE_CHECKING:
    import pandas as pd

DELAY_S = 60.0
"""Seconds from an alarm until the agent is called."""
_SECOND_NS = 1_000_000_000


class ViewClock:
    """The current time of a session, clipped to the view and by default its end; later rows are hidden."""

    def __init__(self, context: EpisodeContext, now_ns: int | None = None) -> None:
        self.start_ns, self.end_ns = context.view_start_ns, context.view_end_ns
        self.now_ns = self.end_ns if now_ns is None else min(max(now_ns, self.start_ns + 1), self.end_ns)

    @classmethod
    def after(cls, context: EpisodeContext, alarm_ns: int, delay_s: float = DELAY_S) -> ViewClock:
        """Return the clock of an engineer or agent who is called some seconds after an alarm."""
        return cls(context, alarm_ns + round(delay_s * _SECOND_NS))

    @property
    def left_s(self) -> float:
        """Seconds until the view ends."""
        return (self.end_ns - self.now_ns) / _SECOND_NS

    def wait(self, seconds: float) -> float:
        """Advance the clock, at most to the end of the view; return by how many seconds."""
        if not seconds >= 0:
            raise UsageError(f"the seconds to wait must not be negative, got {seconds}")
        before = self.now_ns
        self.now_ns = min(self.end_ns, self.now_ns + round(min(seconds, 1e9) * _SECOND_NS))
        return (self.now_ns - before) / _SECOND_NS

    def since_ns(self, seconds: float | None) -> int:
        """Return the time `seconds` before now, at least the start of the view; if `seconds` is None, return that
        start."""
        if seconds is None:
            return self.start_ns
        return max(self.start_ns, self.now_ns - round(min(max(seconds, 0.0), 1e9) * _SECOND_NS))

    def __str__(self) -> str:
        return rfc3339(self.now_ns)


_MAX_PATTERN_LENGTH = 200
_METRIC_COLUMNS = ["time", "service", "pod", "container", "metric", "labels", "kind", "value"]


class SharedTables:
    """Read-only data that sessions about one episode share, independent of their clocks."""

    def __init__(self, view: EpisodeView) -> None:
        self._view = view
        self._lock = threading.RLock()
        self._cache: dict[tuple[str, str], Any] = {}

    def table(self, name: str) -> tuple[pa.Table, np.ndarray]:
        """Return a table other than metrics without the column `episode`, and its times in UTC nanoseconds."""
        return self._once(("table", name), lambda: self._read(name))

    @property
    def log_patterns(self) -> pa.Array:
        """The first 200 characters of all log lines, with masked numbers, as a dictionary array."""
        return self._once(("logs", "patterns"), self._mask_logs)

    @property
    def series(self) -> dict[str, tuple[str, ...]]:
        return self._once(("metrics", "series"), self._list_series)

    @property
    def object_rows(self) -> list[dict[str, Any]]:
        """All observed states of objects: time_ns, kind, name, service, state and data."""
        return self._once(("objects", "rows"), self._read_states)

    def metric(self, name: str) -> pd.DataFrame:
        """Return all samples of a metric with few series, with times as integers; cached."""
        return self._once(("metric", name), lambda: self.metric_samples([("metric", "=", name)]))

    def metric_samples(self, filters: list[Any]) -> pd.DataFrame:
        """Return filtered samples, with times as integers; not cached."""
        frame = self._view.table("metrics", _METRIC_COLUMNS, filters).unify_dictionaries().to_pandas()
        return frame.assign(time=frame["time"].astype("int64"))

    def _once(self, key: tuple[str, str], make: Callable[[], Any]) -> Any:
        with self._lock:
            if key not in self._cache:
                self._cache[key] = make()
            return self._cache[key]

    def _read(self, name: str) -> tuple[pa.Table, np.ndarray]:
        rows = self._view.table(name).drop_columns(["episode"]).unify_dictionaries().combine_chunks()
        return rows, rows[time_column(name)].cast(pa.int64()).to_numpy()

    def _mask_logs(self) -> pa.Array:
        texts = pc.utf8_slice_codeunits(self.table("logs")[0]["message"], 0, _MAX_PATTERN_LENGTH)  # type: ignore[attr-defined]
        return mask_column(texts).combine_chunks().dictionary_encode()

    def _list_series(self) -> dict[str, tuple[str, ...]]:
        rows = self._view.table("metrics", ["metric", "service"])
        pairs = rows.group_by(["metric", "service"]).aggregate([]).to_pylist()
        by_metric: dict[str, set[str]] = {}
        for pair in pairs:
            by_metric.setdefault(pair["metric"], set()).update(() if pair["service"] is None else (pair["service"],))
        return {metric: tuple(sorted(services)) for metric, services in sorted(by_metric.items())}

    def _read_states(self) -> list[dict[str, Any]]:
        rows, times = self.table("objects")
        columns = {name: rows[name].to_pylist() for name in ("kind", "name", "service", "state", "data")}
        return [
            {"time_ns": int(time), **{name: column[i] for name, column in columns.items()}}
            for i, time in enumerate(times)
        ]


_shared: weakref.WeakValueDictionary[Hashable, SharedTables] = weakref.WeakValueDictionary()
_shared_lock = threading.Lock()


def shared_tables(view: EpisodeView) -> SharedTables:
    """Return the tables of another session on the same unchanged files, or new tables."""
    try:
        files = view.file_stamps
    except (DataError, OSError):
        # reading the table will report the problem
        return SharedTables(view)
    with _shared_lock:
        tables = _shared.get(files)
        if tables is None:
            tables = _shared[files] = SharedTables(view)
        return tables


RECORDED_KINDS = (
    "Deployment", "ReplicaSet", "Pod", "Service", "Endpoints", "PersistentVolumeClaim", "PersistentVolume", "ConfigMap",
)  # fmt: skip
"""Kinds whose objects are all recorded by the platforms of faultset."""
_ROWS = {"logs": "log lines"}


class VisibleTables:
    """A view up to the current time of a clock."""

    def __init__(self, view: EpisodeView, clock: ViewClock) -> None:
        self.view, self.clock = view, clock
        self._whole = shared_tables(view)

    @property
    def context(self) -> EpisodeContext:
        return self.view.context

    @property
    def namespace(self) -> str:
        return self.context.app

    def has(self, table: str) -> bool:
        """Return whether a table was recorded; if so, the absence of rows means that nothing happened."""
        if table == "metrics":
            return bool(self.series)
        return bool(len(self._whole.table(table)[0])) or (table == "events" and self.context.platform != IMPORTED)

    def problem(self, table: str, service: str | None = None) -> ToolAnswer | None:
        """Return the answer for a missing table or service; None if the recording has both."""
        if not self.has(table):
            return answer_not_recorded(f"this recording has no {_ROWS.get(table, table)}")
        return answer_absent("service", service, self.services) if service not in (None, *self.services) else None

    def table(self, name: str, since_ns: int | None = None) -> pa.Table:
        """Return the rows of a table from a time up to now, without the column `episode`; for metrics see `metric`."""
        rows, times = self._whole.table(name)
        first = 0 if since_ns is None else int(np.searchsorted(times, since_ns))
        last = int(np.searchsorted(times, self.clock.now_ns))
        visible = rows.slice(first, max(0, last - first))
        if name == "spans":
            # a span is recorded when it ends
            end_ns = times[first : first + len(visible)] + visible["duration_ns"].to_numpy()
            visible = visible.filter(pa.array(end_ns <= self.clock.now_ns))
        return visible

    def log_patterns(self) -> pa.Table:
        """Return the service, level, pattern and time of the log lines up to now."""
        rows, times = self._whole.table("logs")
        last = int(np.searchsorted(times, self.clock.now_ns))
        lines = rows.select(["service", "level"]).append_column("pattern", self._whole.log_patterns)
        return lines.append_column("time", pa.array(times)).slice(0, last)

    def frame(self, name: str, since_ns: int | None = None) -> pd.DataFrame:
        return self.table(name, since_ns).to_pandas()

    def metric(self, names: Sequence[str], service: str | None = None, since_ns: int | None = None) -> pd.DataFrame:
        """Return the samples of metrics up to now, with times as integers."""
        filters: list[Any] = [("metric", "in", list(names))]
        if service is not None:
            filters.append(("service", "=", service))
        frame = self._whole.metric_samples(filters)
        is_visible = frame["time"] < self.clock.now_ns
        if since_ns is not None:
            is_visible &= frame["time"] >= since_ns
        return frame[is_visible]

    def cached_metric(self, name: str) -> pd.DataFrame:
        """Return the samples of a metric with few series, cached because lists of objects need it often."""
        whole = self._whole.metric(name)
        return whole[whole["time"] < self.clock.now_ns]

    @property
    def series(self) -> dict[str, tuple[str, ...]]:
        """Metric -> services that have it, in the whole view; names of metrics reveal nothing about later pods."""
        return self._whole.series

    @property
    def metric_names(self) -> Sequence[str]:
        return tuple(self.series)

    @functools.cached_property
    def services(self) -> tuple[str, ...]:
        """Services of the context and all others in the recording."""
        others = set(self._whole.table("objects")[0]["service"].to_pylist()) - {None}
        return tuple(dict.fromkeys([*self.context.services, *sorted(others)]))

    def history(self, kind: str, name: str) -> list[dict[str, Any]]:
        """Return all changes of an object's state up to now: `time_ns`, `text` and `state`."""
        changes: list[dict[str, Any]] = []
        for row in self._whole.object_rows:
            if row["time_ns"] >= self.clock.now_ns:
                break
            if row["kind"] == kind and row["name"] == name and (not changes or changes[-1]["text"] != row["state"]):
                changes.append({"time_ns": row["time_ns"], "text": row["state"], "state": _read_state(row)})
        return changes

    def objects(self, kind: str, at_ns: int | None = None) -> dict[str, dict[str, Any]]:
        """Return the last observed state of every object of a kind by name, as of a time.

        Objects are observed at least once per interval; an object that is missing in the last round no longer exists.
        """
        return {name: row["state"] for name, row in self.object_records(kind, at_ns).items()}

    def object_records(self, kind: str, at_ns: int | None = None) -> dict[str, dict[str, Any]]:
        """Return `objects` with `service`, `first_ns` and `created_ns` (None for objects older than the view)."""
        at = self.clock.now_ns if at_ns is None else min(at_ns, self.clock.now_ns)
        last: dict[str, dict[str, Any]] = {}
        newest_round = 0
        for row in self._whole.object_rows:
            if row["time_ns"] >= at:
                break
            newest_round = self._round_ns(row["time_ns"])
            if row["kind"] == kind:
                first_ns = last.get(row["name"], row).get("first_ns", row["time_ns"])
                last[row["name"]] = row | {"first_ns": first_ns}
        records = {}
        for name, row in last.items():
            if row["time_ns"] >= newest_round or self.context.platform == IMPORTED:
                is_new = row["first_ns"] >= self._round_ns(self.clock.start_ns) + self._interval_ns // 2
                records[name] = row | {
                    "state": _read_state(row),
                    "created_ns": row["first_ns"] if is_new else None,
                }
        return records

    @property
    def _interval_ns(self) -> int:
        return round((self.context.source_intervals_s.get("objects") or 10.0) * 1e9)

    def _round_ns(self, time_ns: int) -> int:
        """Return the start of the round of observations that a time belongs to."""
        first = int(self._whole.table("objects")[1][0])
        return first + (time_ns - first) // self._interval_ns * self._interval_ns


def _read_state(row: dict[str, Any]) -> dict[str, Any]:
    """Return the recorded fields of an object, including the recorded texts of a ConfigMap."""
    texts = {} if row["data"] is None else {"data": json.loads(row["data"])}
    return json.loads(row["state"]) | texts
