"""Sections about recordings of a dataset card."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from faultset.datasets.format.card_cells import cell
from faultset.datasets.format.recording_summaries import RecordingSummary
from faultset.datasets.format.stretches import Stretch
from faultset.datasets.format.version_files import VersionFile


def recording_sections(version_file: VersionFile, recordings: Mapping[str, RecordingSummary]) -> str:
    """Return the sections about recordings; empty without any."""
    if not recordings:
        return ""
    rows = "\n".join(
        f"| {recording} | {cell(summary.context.app_title)} | {summary.duration_s / 3600:.2f} | {len(summary.chunks)} "
        f"| {summary.chunks[-1].segment} | {len(summary.incidents)} | {summary.context.sampling_step_s:g} "
        f"| {cell(str(summary.context.sampling))} |"
        for recording, summary in sorted(recordings.items())
    )
    counts = Counter(
        (summary.context.app_title, incident.fault or "", incident.verdict)
        for summary in recordings.values()
        for incident in summary.incidents
    )
    incidents = "\n".join(
        f"| {cell(app)} | {cell(fault)} | {verdict} | {count} |"
        for (app, fault, verdict), count in sorted(counts.items())
    )
    splits = "\n".join(
        f"| {cell(name)} | {cell(split.key)} | {_hours(split.train)} | {_hours(split.validation)} "
        f"| {_hours(split.test)} |"
        for name, split in version_file.recording_splits.items()
    )
    return f"""## Recordings

| recording | app | hours | chunks | segments | incidents | metrics every, s | kept |
|---|---|---|---|---|---|---|---|
{rows}

| app | fault | verdict | incidents |
|---|---|---|---|
{incidents}

| split of the recordings | separated by | train, h | validation, h | test, h |
|---|---|---|---|---|
{splits}

`recordings/<id>/chunks/<number>/` has folders `telemetry/` and `truth/` like an episode.

"""


def _hours(stretches: Sequence[Stretch]) -> str:
    return f"{sum(stretch.length_s for stretch in stretches) / 3600:.2f}"
