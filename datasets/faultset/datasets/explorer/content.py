"""Compute the explorer's content for one episode."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from faultset.core.times import SECOND_NS, utc_text
from faultset.datasets.dataset import Episode
from faultset.datasets.explorer.health import TimeGrid, client_requests, metric_lines, service_map
from faultset.datasets.explorer.records import events, log_lines_by_kind, object_changes, trace_examples

Answers = Mapping[str, Sequence[Mapping[str, Any]]]
"""Episode -> answers of methods."""
_TIMES = ("inject_start_ns", "effective_ns", "first_manifest_ns", "recover_start_ns")


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
    """Return the content of the page of an episode.

    Parameters
    ----------
    truth
        Whether to include the label and the evidence.
    answers
        Answers of methods by episode; omitted by default.
    incident
        Time and suspects of an incident; see `faultset.datasets.explorer.page.write_incident_page`.
    """
    view = episode.view
    context = view.context
    grid = TimeGrid.of(context)
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
    content |= {name.removesuffix("_ns"): grid.seconds(getattr(label, name)) for name in _TIMES}
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
