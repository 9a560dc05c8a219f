"""The tables of a view as far as a clock has come, read once and only where they are asked for."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from faultset.datasets.format.context import IMPORTED, EpisodeContext
from faultset.datasets.format.schemas import time_column
from faultset.datasets.log_masks import masked_column
from faultset.datasets.tools.clock import ViewClock
from faultset.datasets.views import EpisodeView

if TYPE_CHECKING:
    import pandas as pd

_LONGEST_PATTERN = 200
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
        self._tables: dict[str, tuple[pa.Table, np.ndarray]] = {}
        self._patterns: pa.Array | None = None
        self._small_metrics: dict[str, pd.DataFrame] = {}

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
        return bool(len(self._whole(table)[0])) or (table == "events" and self.context.platform != IMPORTED)

    def table(self, name: str, since_ns: int | None = None) -> pa.Table:
        """Return the rows of a table from an instant up to now, without the episode's id; see `metric` for metrics."""
        rows, times = self._whole(name)
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
        rows, times = self._whole("logs")
        if self._patterns is None:
            texts = pc.utf8_slice_codeunits(rows["message"], 0, _LONGEST_PATTERN)  # type: ignore[attr-defined]
            self._patterns = masked_column(texts).combine_chunks().dictionary_encode()
        last = int(np.searchsorted(times, self.clock.now_ns))
        shown = rows.select(["service", "level"]).append_column("pattern", self._patterns)
        return shown.append_column("time", pa.array(times)).slice(0, last)

    def frame(self, name: str, since_ns: int | None = None) -> pd.DataFrame:
        """Return `table` as a frame."""
        return self.table(name, since_ns).to_pandas()

    def metric(self, names: Sequence[str], service: str | None = None, since_ns: int | None = None) -> pd.DataFrame:
        """Return the samples of some metrics up to now, with times as integers."""
        wanted: list[Any] = [("metric", "in", list(names))]
        if service is not None:
            wanted.append(("service", "=", service))
        frame = self._read_metric(wanted)
        kept = frame["time"] < self.clock.now_ns
        if since_ns is not None:
            kept &= frame["time"] >= since_ns
        return frame[kept]

    def kept_metric(self, name: str) -> pd.DataFrame:
        """Return `metric` for one with few series that lists ask for again and again; it is read once."""
        if name not in self._small_metrics:
            whole = self._read_metric([("metric", "=", name)])
            self._small_metrics[name] = whole
        whole = self._small_metrics[name]
        return whole[whole["time"] < self.clock.now_ns]

    def _read_metric(self, filters: list[Any]) -> pd.DataFrame:
        columns = ["time", "service", "pod", "container", "metric", "labels", "kind", "value"]
        frame = self.view.table("metrics", columns, filters).unify_dictionaries().to_pandas()
        return frame.assign(time=frame["time"].astype("int64"))

    @functools.cached_property
    def series(self) -> dict[str, tuple[str, ...]]:
        """Metric -> services that have it, over the whole view; pods that come later are no secret by their metric."""
        rows = self.view.table("metrics", ["metric", "service"])
        pairs = rows.group_by(["metric", "service"]).aggregate([]).to_pylist()
        found: dict[str, set[str]] = {}
        for pair in pairs:
            found.setdefault(pair["metric"], set()).update(() if pair["service"] is None else (pair["service"],))
        return {metric: tuple(sorted(services)) for metric, services in sorted(found.items())}

    @property
    def metric_names(self) -> Sequence[str]:
        """All metrics."""
        return tuple(self.series)

    @functools.cached_property
    def services(self) -> tuple[str, ...]:
        """Candidates and whatever else is called a service in the recording."""
        others = set(self._whole("objects")[0]["service"].to_pylist()) - {None}
        return tuple(dict.fromkeys([*self.context.services, *sorted(others)]))

    @functools.cached_property
    def _object_rows(self) -> list[dict[str, Any]]:
        rows, times = self._whole("objects")
        columns = {name: rows[name].to_pylist() for name in ("kind", "name", "service", "state")}
        return [
            {"time_ns": int(time), **{name: column[i] for name, column in columns.items()}}
            for i, time in enumerate(times)
        ]

    def history(self, kind: str, name: str) -> list[dict[str, Any]]:
        """Return every change of an object's state up to now: `time_ns` and `state`."""
        changes: list[dict[str, Any]] = []
        for row in self._object_rows:
            if row["time_ns"] >= self.clock.now_ns:
                break
            if row["kind"] == kind and row["name"] == name and (not changes or changes[-1]["text"] != row["state"]):
                changes.append({"time_ns": row["time_ns"], "text": row["state"], "state": json.loads(row["state"])})
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
        for row in self._object_rows:
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
                    "state": json.loads(row["state"]),
                    "created_ns": row["first_ns"] if known else None,
                }
        return found

    @property
    def _interval_ns(self) -> int:
        return round((self.context.source_intervals_s.get("objects") or 10.0) * 1e9)

    def _round_ns(self, time_ns: int) -> int:
        """Return when the last round of observations began."""
        first = int(self._whole("objects")[1][0])
        return first + (time_ns - first) // self._interval_ns * self._interval_ns

    def _whole(self, name: str) -> tuple[pa.Table, np.ndarray]:
        if name not in self._tables:
            rows = self.view.table(name).drop_columns(["episode"]).unify_dictionaries().combine_chunks()
            times = rows[time_column(name)].cast(pa.int64()).to_numpy()
            self._tables[name] = rows, times
        return self._tables[name]
