"""Compute the explorer's content for one episode or recording, and read the answers of methods."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from faultset.core.errors import DataError
from faultset.core.files import parquet_path
from faultset.core.times import SECOND_NS, utc_text
from faultset.datasets.dataset import Episode
from faultset.datasets.explorer.health import TimeGrid, client_requests, metric_lines, round_values, service_map
from faultset.datasets.explorer.records import events, log_lines_by_kind, object_changes, trace_examples
from faultset.datasets.format.recordings import Stretch
from faultset.datasets.recordings.recording import Recording
from faultset.datasets.recordings.window_view import WindowView
from faultset.datasets.training.columns import service_calls

Answers = Mapping[str, Sequence[Mapping[str, Any]]]
"""Episode -> answers of methods."""
_LABEL_TIMES = ("inject_start_ns", "effective_ns", "first_manifest_ns", "recover_start_ns")


def episode_row(episode: Episode, *, truth: bool) -> dict[str, Any]:
    """Return an episode's row in the list; only its context and label are read."""
    context = episode.context
    row: dict[str, Any] = {
        "id": episode.id,
        "app": context.app,
        "platform": context.platform,
        "start": utc_text(context.view_start_ns),
        "seconds": (context.view_end_ns - context.view_start_ns) / SECOND_NS,
        "rows": {
            path.partition("/")[2].removesuffix(".parquet"): record.rows
            for path, record in episode.files.items()
            if record.rows is not None and path.startswith("telemetry/")
        },
    }
    if truth:
        label = episode.label
        row["truth"] = {
            "fault": label.fault,
            "none": label.no_fault_kind,
            "targets": label.targets,
            "verdict": label.verdict,
            "level": label.system_level,
            "type": label.fault_type,
        }
    return row


def episode_content(
    episode: Episode, *, truth: bool, answers: Answers | None = None, incident: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the content of the page of an episode, with the label and the evidence if `truth`."""
    view = episode.view
    context = view.context
    grid = TimeGrid.over(*view.window, context.sampling_step_s)
    content: dict[str, Any] = {
        "id": episode.id,
        "app": context.app,
        "platform": context.platform,
        "start": utc_text(context.view_start_ns),
        "seconds": (context.view_end_ns - context.view_start_ns) / SECOND_NS,
        "reference": grid.seconds(context.reference_end_ns),
        "step": grid.step_s,
        "steps": grid.steps,
        "services": context.services,
        "clients": client_requests(view, grid),
        "map": service_map(view, grid),
        "metrics": metric_lines(view, grid),
        "logs": log_lines_by_kind(view, grid),
        "traces": trace_examples(view, grid),
        "events": events(view, grid),
        "objects": object_changes(view, grid),
    }
    if answers is not None:
        content["answers"] = [
            {**answer, "alarm": None if answer["alarm_ns"] is None else grid.seconds(answer["alarm_ns"])}
            for answer in answers.get(episode.id, ())
        ]
    if incident is not None:
        content["incident"] = _describe_incident(incident, grid)
    if truth:
        content["truth"] = _describe_truth(episode, grid)
    return content


def _describe_incident(incident: Mapping[str, Any], grid: TimeGrid) -> dict[str, Any]:
    suspects = [
        {
            "service": suspect["service"],
            "observations": [
                {"at": grid.seconds(item["time_ns"]), "text": item["text"]} for item in suspect["observations"]
            ],
        }
        for suspect in incident["suspects"]
    ]
    return {"moment": grid.seconds(incident["moment_ns"]), "summary": incident["summary"], "suspects": suspects}


def content_json(content: Any) -> str:
    """Return JSON; NaN and infinities raise ValueError."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_convert_value)


def _convert_value(value: Any) -> Any:
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be converted to JSON")


def _describe_truth(episode: Episode, grid: TimeGrid) -> dict[str, Any]:
    label = episode.label
    evidence = episode.evidence
    content: dict[str, Any] = {
        "fault": label.fault,
        "none": label.no_fault_kind,
        "targets": label.targets,
        "causes": [asdict(cause) for cause in label.root_causes],
        "level": label.system_level,
        "type": label.fault_type,
        "category": label.category,
        "verdict": label.verdict,
        "parameters": json.dumps(dict(label.parameters), ensure_ascii=False),
    }
    content |= {name.removesuffix("_ns"): grid.seconds(getattr(label, name)) for name in _LABEL_TIMES}
    content["evidence"] = [
        {
            "check": row["check"],
            "subject": row["subject"],
            "time": None if pd.isna(row["time"]) else grid.seconds(row["time"].value),
            "passed": bool(row["passed"]),
            "detail": row["detail"],
        }
        for row in evidence.to_dict("records")
    ]
    return content


MAX_RECORDING_STEPS = 1440
"""Maximum number of steps of a recording; a page shows some of them at a time."""
MAX_SERIES = 40
"""Maximum number of metrics shown for a recording without requests and spans."""


def recording_row(recording: Recording[Any], *, truth: bool) -> dict[str, Any]:
    """Return the row of a recording in the list."""
    row: dict[str, Any] = {
        "id": recording.id,
        "app": recording.context.app,
        "platform": recording.context.platform,
        "start": utc_text(recording.start_ns),
        "seconds": recording.duration_s,
    }
    if truth:
        row["incidents"] = len(recording.truth.incidents)
    return row


def recording_content(recording: Recording[Any], *, truth: bool, answers: Answers | None = None) -> dict[str, Any]:
    """Return the content of the page of a recording."""
    sampling_s = recording.context.sampling_step_s
    grid = TimeGrid.over(recording.start_ns, recording.end_ns, sampling_s, MAX_RECORDING_STEPS)
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
        content["truth"] = _describe_recording_truth(recording, grid)
    return content


@dataclass
class _Lanes:
    """Counts and latencies per step, filled chunk by chunk."""

    grid: TimeGrid
    names: Sequence[str]
    counts: dict[tuple[str, str], npt.NDArray[np.float64]] = field(default_factory=dict)
    has_calls: bool = False

    def _get_row(self, owner: str, measure: str) -> npt.NDArray[np.float64]:
        empty = np.zeros(self.grid.steps)
        return self.counts.setdefault((owner, measure), empty)

    def add(self, view: WindowView) -> None:
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
                self._get_row("", measure)[:] += np.bincount(steps[chosen], minlength=self.grid.steps)
            latency_ms = requests["latency_ns"].to_numpy(zero_copy_only=False).astype(float) / 1e6
            self._add_quantiles("", steps, latency_ms, {"p50": 0.5, "p95": 0.95})
        calls = service_calls(view)
        if calls.empty:
            return
        self.has_calls = True
        callees = calls["edge"].str.partition("->")[2].to_numpy()
        steps = self.grid.steps_at(calls["end"].to_numpy())
        for name in self.names:
            rows = callees == name
            if rows.any():
                self._get_row(name, "calls")[:] += np.bincount(steps[rows], minlength=self.grid.steps)
                failed = calls["failed"].to_numpy()[rows]
                self._get_row(name, "failed")[:] += np.bincount(steps[rows], failed, minlength=self.grid.steps)
                self._add_quantiles(name, steps[rows], 1e3 * calls["seconds"].to_numpy()[rows], {"ms": 0.95})

    def _add_quantiles(
        self, owner: str, steps: npt.NDArray[np.int64], values: npt.NDArray[np.float64], shares: Mapping[str, float]
    ) -> None:
        finite = np.isfinite(values)
        order = np.argsort(steps[finite], kind="stable")
        steps, values = steps[finite][order], values[finite][order]
        numbers, starts = np.unique(steps, return_index=True)
        groups = np.split(values, starts[1:]) if len(numbers) else ()
        for step, group in zip(numbers.tolist(), groups, strict=True):
            for measure, share in shares.items():
                row = self._get_row(owner, measure)
                # a step that two chunks share keeps the larger of their values
                row[step] = max(row[step], float(np.quantile(group, share)))

    def clients(self) -> dict[str, Any] | None:
        if ("", "ok") not in self.counts:
            return None
        rows = {measure: self._get_row("", measure) for measure in ("ok", "failed", "unfinished", "p50", "p95")}
        return {
            measure: _omit_zeros(row) if measure.startswith("p") else round_values(row) for measure, row in rows.items()
        }

    def services(self) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "calls": round_values(self._get_row(name, "calls")),
                "failed": round_values(self._get_row(name, "failed")),
                "ms": _omit_zeros(self._get_row(name, "ms")),
            }
            for name in self.names
            if (name, "calls") in self.counts
        ]


def _omit_zeros(row: npt.NDArray[np.float64]) -> list[float | None]:
    return round_values(np.where(row > 0, row, np.nan))


def _read_metric_lanes(recording: Recording[Any], grid: TimeGrid) -> list[dict[str, Any]]:
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


def _describe_recording_truth(recording: Recording[Any], grid: TimeGrid) -> dict[str, Any]:
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


RESULTS_FILE, ALARMS_FILE = "results.parquet", "alarms.parquet"
_COLUMNS = ("baseline", "kind", "episode", "task", "protocol", "seed", "status", "alarm_ns", "ranking", "answer")
_PROTOCOLS = ("detected", "oracle")
_MAX_SERVICES = 3


def read_answers(results: Path) -> dict[str, list[dict[str, Any]]]:
    """Read the answers of an evaluation by episode and recording; only the first seed of each method is read.

    `results` is a folder that `evaluate` wrote, or its `results.parquet`.
    """
    path = results / RESULTS_FILE if results.is_dir() else results
    try:
        rows = pq.read_table(parquet_path(path), columns=list(_COLUMNS)).to_pylist()
    except (OSError, pa.ArrowException, KeyError) as error:
        raise DataError(f"{path} cannot be read as results ({error}); give a folder that evaluate wrote") from error
    if rows and set(_COLUMNS) - set(rows[0]):
        raise DataError(f"{path} lacks result columns; give a folder that evaluate wrote")
    answers: dict[str, dict[tuple[str, ...], dict[str, Any]]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: (row["task"], row["baseline"], row["protocol"], row["seed"])):
        if row["protocol"] in _PROTOCOLS:
            key = row["task"], row["baseline"], row["protocol"]
            answers[row["episode"]].setdefault(key, _describe_answer(row))
    by_unit = {episode: list(by_key.values()) for episode, by_key in answers.items()}
    return by_unit | _read_alarms(path.with_name(ALARMS_FILE))


def _read_alarms(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the alarms of detectors by recording; empty if the evaluation had no recordings."""
    if not path.is_file():
        return {}
    try:
        table = pq.read_table(parquet_path(path), columns=["recording", "baseline", "seed", "alarm_ns"])
        rows: list[dict[str, Any]] = table.to_pylist()
    except (OSError, pa.ArrowException, KeyError) as error:
        raise DataError(f"{path} cannot be read as alarms ({error}); give a folder that evaluate wrote") from error
    alarms: dict[str, list[dict[str, Any]]] = defaultdict(list)
    first_seeds: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: row["seed"]):
        first_seeds.setdefault(row["baseline"], row["seed"])
    for row in rows:
        if row["seed"] == first_seeds[row["baseline"]]:
            alarms[row["recording"]].append({"method": row["baseline"], "alarm_ns": row["alarm_ns"]})
    return dict(alarms)


def _describe_answer(row: Mapping[str, Any]) -> dict[str, Any]:
    ranking = json.loads(row["ranking"] or "{}")
    cause = json.loads(row["answer"] or "{}") if row["task"] == "rca" else {}
    return {
        "task": row["task"],
        "method": row["baseline"],
        "kind": row["kind"],
        "protocol": row["protocol"],
        "status": row["status"],
        "alarm_ns": row["alarm_ns"],
        "services": sorted(ranking, key=lambda name: (-ranking[name], name))[:_MAX_SERVICES],
        "level": cause.get("system_level"),
        "type": cause.get("fault_type"),
    }
