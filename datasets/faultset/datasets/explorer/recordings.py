"""Compute the explorer's content for one recording, chunk by chunk."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from faultset.core.times import SECOND_NS
from faultset.datasets.explorer.health import TimeGrid, round_values
from faultset.datasets.format.stretches import Stretch
from faultset.datasets.recordings.recording import Recording
from faultset.datasets.recordings.window_view import WindowView
from faultset.datasets.training.columns import service_calls

MAX_STEPS = 1440
"""Maximum number of steps of a recording; a page shows some of them at a time."""
MAX_SERIES = 40
"""Maximum number of metrics shown for a recording without requests and spans."""
Answers = Mapping[str, Sequence[Mapping[str, Any]]]
"""Recording -> answers of methods, with `method` and `alarm_ns`."""


def recording_row(recording: Recording[Any], *, truth: bool) -> dict[str, Any]:
    """Return the row of a recording in the list."""
    row: dict[str, Any] = {
        "id": recording.id,
        "app": recording.context.app,
        "platform": recording.context.platform,
        "start": _format_time(recording.start_ns),
        "seconds": recording.duration_s,
    }
    if truth:
        row["incidents"] = len(recording.truth.incidents)
    return row


def recording_content(recording: Recording[Any], *, truth: bool, answers: Answers | None = None) -> dict[str, Any]:
    """Return the content of the page of a recording.

    Parameters
    ----------
    truth
        Whether to include incidents, decoys and void stretches.
    answers
        Answers of methods by recording; omitted by default.
    """
    grid = recording_grid(recording)
    lanes = _Lanes(grid, recording.view.services)
    for chunk in recording.view.chunks:
        lanes.add(WindowView(recording.view, Stretch(recording.id, chunk.start_ns, chunk.end_ns)))
    content: dict[str, Any] = recording_row(recording, truth=truth) | {
        "seconds": grid.steps * grid.step_s,
        "step": grid.step_s,
        "steps": grid.steps,
        "segments": [_convert_span(grid, *stretch[1:]) for stretch in recording.view.segments],
        "sampling": str(recording.context.sampling),
        "clients": lanes.clients(),
        "services": lanes.services(),
        "metrics": [] if lanes.has_calls else _read_metric_lanes(recording, grid),
    }
    if answers is not None:
        content["answers"] = _build_alarm_lanes(answers.get(recording.id, ()), grid)
    if truth:
        content["truth"] = _describe_truth(recording, grid)
    return content


def recording_grid(recording: Recording[Any]) -> TimeGrid:
    """Return a grid of whole sampling intervals over a recording, with at most `MAX_STEPS` steps."""
    seconds = (recording.end_ns - recording.start_ns) / SECOND_NS
    sampling = recording.context.sampling_step_s
    step_s = sampling * max(1, math.ceil(seconds / sampling / MAX_STEPS))
    return TimeGrid(start_ns=recording.start_ns, step_s=step_s, steps=max(1, math.ceil(seconds / step_s)))


@dataclass
class _Lanes:
    """Counts and latencies per step, filled chunk by chunk."""

    grid: TimeGrid
    names: Sequence[str]
    counts: dict[tuple[str, str], npt.NDArray[np.float64]] = field(default_factory=dict)
    has_calls: bool = False

    def _row(self, owner: str, measure: str) -> npt.NDArray[np.float64]:
        empty = np.zeros(self.grid.steps)
        return self.counts.setdefault((owner, measure), empty)

    def add(self, view: WindowView) -> None:
        """Add the requests and calls of a chunk."""
        requests = view.table("requests", ["scheduled", "latency_ns", "outcome"])
        if len(requests):
            self.has_calls = True
            steps = self.grid.steps_at(requests["scheduled"].cast(pa.int64()).to_numpy())
            outcomes = requests["outcome"].cast(pa.string()).to_numpy(zero_copy_only=False)
            for measure, chosen in (
                ("ok", outcomes == "ok"),
                ("unfinished", outcomes == "unfinished"),
                ("failed", (outcomes != "ok") & (outcomes != "unfinished")),
            ):
                self._row("", measure)[:] += np.bincount(steps[chosen], minlength=self.grid.steps)
            latency_ms = requests["latency_ns"].to_numpy(zero_copy_only=False).astype(float) / 1e6
            self._quantiles("", steps, latency_ms, {"p50": 0.5, "p95": 0.95})
        calls = service_calls(view)
        if calls.empty:
            return
        self.has_calls = True
        callees = calls["edge"].str.partition("->")[2].to_numpy()
        steps = self.grid.steps_at(calls["end"].to_numpy())
        for name in self.names:
            rows = callees == name
            if rows.any():
                self._row(name, "calls")[:] += np.bincount(steps[rows], minlength=self.grid.steps)
                failed = calls["failed"].to_numpy()[rows]
                self._row(name, "failed")[:] += np.bincount(steps[rows], failed, minlength=self.grid.steps)
                self._quantiles(name, steps[rows], 1e3 * calls["seconds"].to_numpy()[rows], {"ms": 0.95})

    def _quantiles(
        self, owner: str, steps: npt.NDArray[np.int64], values: npt.NDArray[np.float64], shares: Mapping[str, float]
    ) -> None:
        finite = np.isfinite(values)
        order = np.argsort(steps[finite], kind="stable")
        steps, values = steps[finite][order], values[finite][order]
        numbers, starts = np.unique(steps, return_index=True)
        groups = np.split(values, starts[1:]) if len(numbers) else ()
        for step, group in zip(numbers.tolist(), groups, strict=True):
            for measure, share in shares.items():
                row = self._row(owner, measure)
                # a step that two chunks share keeps the larger of their values
                row[step] = max(row[step], float(np.quantile(group, share)))

    def clients(self) -> dict[str, Any] | None:
        """Return the requests of clients per step; None if there are none."""
        if ("", "ok") not in self.counts:
            return None
        rows = {measure: self._row("", measure) for measure in ("ok", "failed", "unfinished", "p50", "p95")}
        return {
            measure: _omit_zeros(row) if measure.startswith("p") else round_values(row) for measure, row in rows.items()
        }

    def services(self) -> list[dict[str, Any]]:
        """Return calls, failures and 95th percentile of the latency of each service that was called."""
        return [
            {
                "name": name,
                "calls": round_values(self._row(name, "calls")),
                "failed": round_values(self._row(name, "failed")),
                "ms": _omit_zeros(self._row(name, "ms")),
            }
            for name in self.names
            if (name, "calls") in self.counts
        ]


def _omit_zeros(row: npt.NDArray[np.float64]) -> list[float | None]:
    return round_values(np.where(row > 0, row, np.nan))


def _read_metric_lanes(recording: Recording[Any], grid: TimeGrid) -> list[dict[str, Any]]:
    """Return the first metrics per step, for a recording without requests and calls."""
    frame = recording.wide(step_s=grid.step_s)
    steps = grid.steps_at(frame.index.astype("int64").to_numpy())
    lanes = []
    for number, (service, metric) in enumerate(frame.columns.tolist()[:MAX_SERIES]):
        values = np.full(grid.steps, np.nan)
        values[steps] = frame.iloc[:, number].to_numpy(dtype=float)
        lanes.append({"name": f"{service} {metric}", "values": round_values(values)})
    return lanes


def _build_alarm_lanes(rows: Sequence[Mapping[str, Any]], grid: TimeGrid) -> list[dict[str, Any]]:
    alarms: dict[str, list[float]] = {}
    for row in rows:
        times = alarms.setdefault(str(row["method"]), [])
        if row.get("alarm_ns") is not None:
            times.append(grid.seconds(row["alarm_ns"]) or 0.0)
    return [{"name": name, "alarms": sorted(times)} for name, times in sorted(alarms.items())]


def _describe_truth(recording: Recording[Any], grid: TimeGrid) -> dict[str, Any]:
    truth = recording.truth
    return {
        "incidents": [
            {
                "id": incident.incident,
                "fault": incident.fault,
                "target": ", ".join(incident.targets),
                "verdict": incident.verdict,
                "span": _convert_span(grid, *truth.bounds(incident)),
            }
            for incident in truth.incidents
        ],
        "decoys": [
            {"name": f"{row['decoy']} of {row['service']}", "time": grid.seconds(row["start"])}
            for row in truth.rows("decoys")
        ],
        "voids": [
            {"reason": row["reason"], "detail": row["detail"], "span": _convert_span(grid, row["start"], row["end"])}
            for row in truth.rows("voids")
        ],
    }


def _convert_span(grid: TimeGrid, start_ns: int, end_ns: int) -> list[float | None]:
    return [grid.seconds(start_ns), grid.seconds(end_ns)]


def _format_time(time_ns: int) -> str:
    return str(np.datetime64(time_ns, "ns")).replace("T", " ")[:19]
