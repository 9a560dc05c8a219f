"""Rows on recordings for `dataset show` and `dataset episodes`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from faultset.core.times import SECOND_NS

if TYPE_CHECKING:
    from faultset.datasets.dataset import Dataset
    from faultset.datasets.recordings.recording import Recording


def list_recording_rows(dataset: Dataset) -> list[dict[str, Any]]:
    """Return the length, chunks and incidents of each recording."""
    return [
        {
            "recording": recording.id,
            "app": recording.context.app,
            "hours": round(recording.duration_s / 3600, 2),
            "chunks": len(recording.view.chunks),
            "segments": len(recording.view.segments),
            "incidents": len(recording.truth.incidents),
            "void_min": round(sum(void.length_s for void in recording.truth.void_stretches) / 60, 1),
        }
        for recording in dataset.recordings()
    ]


def list_split_rows(dataset: Dataset) -> list[dict[str, Any]]:
    """Return the hours on each side of the splits of recordings."""
    return [
        {"split": name, "key": split.key}
        | {
            side: f"{sum(stretch.length_s for stretch in getattr(split, side)) / 3600:.2f} h"
            for side in ("train", "validation", "test")
        }
        for name, split in dataset.recording_splits.items()
    ]


def incident_records(
    dataset: Dataset, selected: Sequence[str], conditions: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    """Return a row for each incident of the selected recordings that meets the conditions on faults and verdicts."""
    return [
        row
        for name in selected
        if name in dataset.recording_files
        for row in _incident_rows(dataset.recording(name))
        if all(not conditions.get(key) or row[key[:-1]] in conditions[key] for key in ("faults", "verdicts"))
    ]


def _incident_rows(recording: Recording[Any]) -> list[dict[str, Any]]:
    rows = []
    for incident in recording.truth.incidents:
        start_ns, end_ns = recording.truth.bounds(incident)
        rows.append(
            {
                "episode": f"{recording.id}/{incident.incident}",
                "app": recording.context.app,
                "fault": incident.fault,
                "target": ", ".join(incident.targets),
                "verdict": incident.verdict,
                "onset_s": round((start_ns - recording.start_ns) / SECOND_NS, 1),
                "duration_s": round((end_ns - start_ns) / SECOND_NS, 1),
            }
        )
    return rows
