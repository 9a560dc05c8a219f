"""Sections of a dataset card that describe recordings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import ConfigDict

from faultset.core.documents import STRICT, check_type
from faultset.datasets.format.card_cells import cell
from faultset.datasets.format.recording_summaries import RecordingSummary
from faultset.datasets.format.stretches import Stretch
from faultset.datasets.format.version_files import VersionFile

JUDGED_FROM, FALSE_ALARMS = "judged_from", "false_alarms"
"""Entry of the provenance of judged datasets, and its list of false alarms."""
Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class FalseAlarms:
    """False alarms of the tests behind the verdicts, in healthy windows of recordings with the same settings."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    app: str
    """Name of the application."""
    platform: str
    """Name of the platform."""
    load: str
    """Name of the load."""
    step_s: float
    """Interval of metrics in seconds."""
    recordings: int
    """Number of recordings."""
    windows: int
    """Number of healthy windows."""
    client_alarms: int
    """Number of healthy windows in which the test of client requests fires."""
    client_interval: Interval | None
    """95 % interval of the share of windows in which the client test fires; None if `windows` is 0."""
    service_windows: int
    """Number of scores that the limit of the latent test is based on: one for each service in each healthy window."""
    limit: float | None
    """Limit of the latent test; None if there are too few scores."""
    tested: int
    """Number of scores that were compared with the limit of the other recordings."""
    latent_alarms: int
    """Number of scores above the limit of the other recordings."""
    latent_interval: Interval | None
    """95 % interval of the share of these scores; None if none was compared."""

    @property
    def client_alarms_text(self) -> str:
        """Share of the windows in which the test of client requests fires."""
        return _format_share(self.client_alarms, self.windows, self.client_interval)

    @property
    def latent_alarms_text(self) -> str:
        """Share of the scores above the limit of the other recordings."""
        return _format_share(self.latent_alarms, self.tested, self.latent_interval)

    @property
    def limit_text(self) -> str:
        """The limit and the number of scores behind it."""
        limit = "none" if self.limit is None else f"{self.limit:.2f}"
        return f"{limit}, from {self.service_windows} windows of services"


def _format_share(count: int, total: int, interval: Interval | None) -> str:
    if interval is None:
        return f"{count} of {total}"
    low, high = interval
    return f"{count} of {total} ({count / total:.2%} [{100 * low:.2f}, {100 * high:.2f}])"


def read_false_alarms(provenance: Mapping[str, Any]) -> list[FalseAlarms]:
    """Return the false alarms that the provenance of a version names; raise DataError if they are damaged."""
    source = provenance.get(JUDGED_FROM)
    if not isinstance(source, Mapping) or FALSE_ALARMS not in source:
        return []
    origin = f"provenance.{JUDGED_FROM}.{FALSE_ALARMS} of the version"
    return check_type(source[FALSE_ALARMS], list[FalseAlarms], origin)


def recording_sections(version_file: VersionFile, recordings: Mapping[str, RecordingSummary]) -> str:
    """Return the sections about recordings; empty if there are none."""
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
        f"| {cell(name)} | {cell(split.key)} | {_format_hours(split.train)} | {_format_hours(split.validation)} "
        f"| {_format_hours(split.test)} |"
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

{_judged_section(version_file)}`recordings/<id>/chunks/<number>/` has folders `telemetry/` and `truth/` like an episode.

"""


def _judged_section(version_file: VersionFile) -> str:
    """Describe verdicts that were judged after the recording; empty if none was."""
    alarms = read_false_alarms(version_file.provenance)
    if not alarms:
        return ""
    rows = "\n".join(
        f"| {cell(row.app)} | {row.recordings} | {row.client_alarms_text} | {cell(row.limit_text)} "
        f"| {row.latent_alarms_text} |"
        for row in alarms
    )
    return f"""## Verdicts judged after the recording

An incident that clients did not notice is latent if its target's score exceeds the limit that 1 % of the services
exceed in healthy windows of the same length, in the recordings with equal settings. It stays unknown if it overlaps
another incident or void time, if a decoy replaced the target's pods, or if there are too few healthy windows.

| app | recordings | false alarms of the client test | limit, median length | false alarms of the latent test |
|---|---|---|---|---|
{rows}

False alarms are counted in healthy windows, with 95 % intervals. For the latent test, the limit comes from the
other recordings.

"""


def _format_hours(stretches: Sequence[Stretch]) -> str:
    return f"{sum(stretch.length_s for stretch in stretches) / 3600:.2f}"
