"""The tables of a view as far as a clock has come, read once for everybody who asks about the same episode."""

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
from faultset.datasets.format.context import IMPORTED, EpisodeContext
from faultset.datasets.format.schemas import time_column
from faultset.datasets.kubectl.answers import ToolAnswer, absent, not_recorded
from faultset.datasets.kubectl.printing import stamp
from faultset.datasets.log_masks import masked_column
from faultset.datasets.views import EpisodeView

if TYPE_CHECKING:
    import pandas as pd

DELAY_S = 60.0
"""Seconds from an alarm to the moment at which an agent is called."""
_SECOND_NS = 1_000_000_000


class ViewClock:
    """What counts as now. Rows from the start of the view up to now can be seen, later ones cannot.

    Parameters
    ----------
    context
        Of the episode.
    now_ns
        UTC nanoseconds, moved into the view; its end by default.
    """

    def __init__(self, context: EpisodeContext, now_ns: int | None = None) -> None:
        self.start_ns, self.end_ns = context.view_start_ns, context.view_end_ns
        self.now_ns = self.end_ns if now_ns is None else min(max(now_ns, self.start_ns + 1), self.end_ns)

    @classmethod
    def after(cls, context: EpisodeContext, alarm_ns: int, delay_s: float = DELAY_S) -> ViewClock:
        """Return the clock of someone who is called some seconds after an alarm."""
        return cls(context, alarm_ns + round(delay_s * _SECOND_NS))

    @property
    def left_s(self) -> float:
        """Seconds until the view ends."""
        return (self.end_ns - self.now_ns) / _SECOND_NS

    def wait(self, seconds: float) -> float:
        """Move on, up to the end of the view, and return by how many seconds."""
        if not seconds >= 0:
            raise UsageError(f"waiting takes a number of seconds from 0, not {seconds}")
        before = self.now_ns
        self.now_ns = min(self.end_ns, self.now_ns + round(min(seconds, 1e9) * _SECOND_NS))
        return (self.now_ns - before) / _SECOND_NS

    def since_ns(self, seconds: float | None) -> int:
        """Return the instant so many seconds before now, or the start of the view."""
        if seconds is None:
            return self.start_ns
        return max(self.start_ns, self.now_ns - round(min(max(seconds, 0.0), 1e9) * _SECOND_NS))

    def __str__(self) -> str:
        return stamp(self.now_ns, "seconds")


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


RECORDED_KINDS = (
    "Deployment", "ReplicaSet", "Pod", "Service", "Endpoints", "PersistentVolumeClaim", "PersistentVolume", "ConfigMap",
)  # fmt: skip
"""Kinds of objects of which our platforms record every one."""
_ROWS = {"logs": "log lines"}


class Recording:
    """A view up to now.

    Parameters
    ----------
    view
        The episode without its truth.
    clock
        What counts as now.
    """

    def __init__(self, view: EpisodeView, clock: ViewClock) -> None:
        self.view, self.clock = view, clock
        self._whole = shared_tables(view)

    @property
    def context(self) -> EpisodeContext:
        """What is known beforehand."""
        return self.view.context

    @property
    def namespace(self) -> str:
        """Name under which the application's namespace is spoken of."""
        return self.context.app

    def has(self, table: str) -> bool:
        """Whether a table was recorded: its having no rows then means that there was nothing."""
        if table == "metrics":
            return bool(self.series)
        return bool(len(self._whole.table(table)[0])) or (table == "events" and self.context.platform != IMPORTED)

    def problem(self, table: str, service: str | None = None) -> ToolAnswer | None:
        """Return the answer to a question about a table or a service that the recording lacks; None if it has both."""
        if not self.has(table):
            return not_recorded(f"this recording has no {_ROWS.get(table, table)}")
        return absent("service", service, self.services) if service not in (None, *self.services) else None

    def table(self, name: str, since_ns: int | None = None) -> pa.Table:
        """Return the rows of a table from an instant up to now, without the episode's id; see `metric` for metrics."""
        rows, times = self._whole.table(name)
        first = 0 if since_ns is None else int(np.searchsorted(times, since_ns))
        last = int(np.searchsorted(times, self.clock.now_ns))
        part = rows.slice(first, max(0, last - first))
        if name == "spans":
            # A span is known when it has ended.
            ended = times[first : first + len(part)] + part["duration_ns"].to_numpy()
            part = part.filter(pa.array(ended <= self.clock.now_ns))
        return part

    def log_patterns(self) -> pa.Table:
        """Return service, level, pattern and time of the log lines up to now; all lines are masked once."""
        rows, times = self._whole.table("logs")
        last = int(np.searchsorted(times, self.clock.now_ns))
        shown = rows.select(["service", "level"]).append_column("pattern", self._whole.log_patterns)
        return shown.append_column("time", pa.array(times)).slice(0, last)

    def frame(self, name: str, since_ns: int | None = None) -> pd.DataFrame:
        """Return `table` as a frame."""
        return self.table(name, since_ns).to_pandas()

    def metric(self, names: Sequence[str], service: str | None = None, since_ns: int | None = None) -> pd.DataFrame:
        """Return the samples of some metrics up to now, with times as integers."""
        wanted: list[Any] = [("metric", "in", list(names))]
        if service is not None:
            wanted.append(("service", "=", service))
        frame = self._whole.metric_samples(wanted)
        kept = frame["time"] < self.clock.now_ns
        if since_ns is not None:
            kept &= frame["time"] >= since_ns
        return frame[kept]

    def kept_metric(self, name: str) -> pd.DataFrame:
        """Return `metric` for one with few series that lists ask for again and again; it is read once."""
        whole = self._whole.metric(name)
        return whole[whole["time"] < self.clock.now_ns]

    @property
    def series(self) -> dict[str, tuple[str, ...]]:
        """Metric -> services that have it, over the whole view; pods that come later are no secret by their metric."""
        return self._whole.series

    @property
    def metric_names(self) -> Sequence[str]:
        """All metrics."""
        return tuple(self.series)

    @functools.cached_property
    def services(self) -> tuple[str, ...]:
        """Candidates and whatever else is called a service in the recording."""
        others = set(self._whole.table("objects")[0]["service"].to_pylist()) - {None}
        return tuple(dict.fromkeys([*self.context.services, *sorted(others)]))

    def history(self, kind: str, name: str) -> list[dict[str, Any]]:
        """Return every change of an object's state up to now: `time_ns` and `state`."""
        changes: list[dict[str, Any]] = []
        for row in self._whole.object_rows:
            if row["time_ns"] >= self.clock.now_ns:
                break
            if row["kind"] == kind and row["name"] == name and (not changes or changes[-1]["text"] != row["state"]):
                changes.append({"time_ns": row["time_ns"], "text": row["state"], "state": _state(row)})
        return changes

    def objects(self, kind: str, at_ns: int | None = None) -> dict[str, dict[str, Any]]:
        """Return the state of every object of a kind by name, as last observed before an instant.

        Every object is observed at least at each interval, so one that is missing from the last round is gone.
        """
        return {name: row["state"] for name, row in self.object_records(kind, at_ns).items()}

    def object_records(self, kind: str, at_ns: int | None = None) -> dict[str, dict[str, Any]]:
        """Return `objects` with `service`, `first_ns`, and whether the object was there when the view began."""
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
        found = {}
        for name, row in last.items():
            if row["time_ns"] >= newest_round or self.context.platform == IMPORTED:
                known = row["first_ns"] >= self._round_ns(self.clock.start_ns) + self._interval_ns // 2
                found[name] = row | {
                    "state": _state(row),
                    "created_ns": row["first_ns"] if known else None,
                }
        return found

    @property
    def _interval_ns(self) -> int:
        return round((self.context.source_intervals_s.get("objects") or 10.0) * 1e9)

    def _round_ns(self, time_ns: int) -> int:
        """Return when the last round of observations began."""
        first = int(self._whole.table("objects")[1][0])
        return first + (time_ns - first) // self._interval_ns * self._interval_ns


def _state(row: dict[str, Any]) -> dict[str, Any]:
    """Return the recorded fields of an object, of a ConfigMap with its texts where they were recorded."""
    texts = {} if row["data"] is None else {"data": json.loads(row["data"])}
    return json.loads(row["state"]) | texts
