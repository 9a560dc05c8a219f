"""The tables of a view as far as a clock has come, read only where they are asked for."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from faultset.datasets.format.context import IMPORTED, EpisodeContext
from faultset.datasets.tools.clock import ViewClock
from faultset.datasets.tools.shared_tables import shared_tables
from faultset.datasets.views import EpisodeView

if TYPE_CHECKING:
    import pandas as pd

RECORDED_KINDS = (
    "Deployment", "ReplicaSet", "Pod", "Service", "Endpoints", "PersistentVolumeClaim", "PersistentVolume", "ConfigMap",
)  # fmt: skip
"""Kinds of objects of which our platforms record every one."""


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
