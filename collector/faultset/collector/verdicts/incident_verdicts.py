"""Judge incidents of recordings that clients did not notice.

Recordings with the same settings are calibrated together. Windows as long as the incidents' windows are placed in their
healthy stretches, and each service gets a score in each window. An incident is latent if its target's score exceeds the
limit that 1 % of the healthy scores exceed. The test of client requests runs on the healthy windows too, which measures
its false alarms. Windows may contain decoys. A service whose pods a decoy replaced is not scored, and an incident with
such a target is not judged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import cycle
from statistics import median_low
from typing import Any

import pandas as pd

from faultset.collector.plans.plan import Plan, find_plan
from faultset.collector.verdicts.client_requests import (
    MIN_HEALTHY_SHARE,
    ComparisonWindows,
    client_impact,
    unsteady_reason,
)
from faultset.collector.verdicts.exact_tests import compute_binomial_interval
from faultset.collector.verdicts.latent import (
    MIN_FOR_QUANTILE,
    LatentScore,
    compute_limit,
    cross_validate_limit,
    service_scores,
)
from faultset.collector.verdicts.verdict import drop_added_metrics, latent_evidence, select_scores
from faultset.core.files import canonical_json
from faultset.core.times import SECOND_NS
from faultset.datasets.dataset import Dataset
from faultset.datasets.format.cards import FalseAlarms
from faultset.datasets.format.incidents import Incident
from faultset.datasets.metrics.frames import wide_frame
from faultset.datasets.metrics.roles import Catalogue, MetricRole
from faultset.datasets.recordings.recording import Recording


@dataclass(frozen=True)
class PlannedRecording:
    """A recording with the plan in its journal."""

    recording: Recording[Dataset]
    plan: Plan

    @property
    def settings(self) -> str:
        """Settings that recordings must share for their healthy windows to be comparable."""
        context, phases = self.recording.context, self.plan.phases
        facts = {"app": context.app, "platform": context.platform, "step_s": context.sampling_step_s}
        facts |= {"workload": dict(context.workload), "stores": dict(context.stores)}
        return canonical_json(facts | {"healthy_s": phases.baseline_s, "faulty_s": phases.fault_s})

    @property
    def baseline_ns(self) -> int:
        """Healthy time before an incident that its verdict uses."""
        return round(self.plan.phases.baseline_s * SECOND_NS)

    @cached_property
    def pod_replacements(self) -> tuple[tuple[str, int], ...]:
        """Services whose pods decoys replaced, with the times."""
        rows = self.recording.truth.rows("decoys")
        return tuple(
            (str(row["parameters"]["replaces_pods_of"]), row["start"])
            for row in rows
            if "replaces_pods_of" in row["parameters"]
        )

    def list_replaced_services(self, windows: ComparisonWindows) -> set[str]:
        """Return the services whose pods decoys replaced within windows."""
        return {service for service, at_ns in self.pod_replacements if windows.start_ns <= at_ns < windows.end_ns}

    def read_wide(self, windows: ComparisonWindows) -> pd.DataFrame:
        """Return the metrics of windows as a wide frame; as in an episode, earlier samples are not used."""
        view, bounds = self.recording.view, (windows.start_ns, windows.end_ns)
        samples = view.table("metrics", *bounds)
        wide = wide_frame(samples, *bounds, view.context.sampling_step_s, catalogue=view.catalogue)
        return drop_added_metrics(wide, Catalogue(MetricRole(**role) for role in view.context.metric_roles))

    def healthy_onsets(self) -> Iterator[tuple[int, int]]:
        """Yield onsets in healthy stretches, one mean fault length apart, each with the end of its stretch."""
        step_ns = round(self.plan.phases.fault_s * SECOND_NS)
        for stretch in self.recording.truth.healthy_stretches:
            for onset_ns in range(stretch.start_ns + self.baseline_ns, stretch.end_ns, step_ns):
                yield onset_ns, stretch.end_ns

    def windows_around(self, onset_ns: int, length_ns: int) -> ComparisonWindows:
        """Return windows with the whole healthy time before an onset."""
        return ComparisonWindows.around(onset_ns, start_ns=onset_ns - self.baseline_ns, end_ns=onset_ns + length_ns)


def _score_services(wide: pd.DataFrame, windows: ComparisonWindows) -> list[LatentScore]:
    """Return a score for each service, which grows with the change of its telemetry at the onset."""
    samples = wide[wide.index < pd.Timestamp(windows.end_ns, tz="UTC")]
    return service_scores(samples, reference_end_ns=windows.reference_end_ns, onset_ns=windows.onset_ns)


def find_planned_recordings(recordings: Iterable[Recording[Dataset]]) -> Iterator[PlannedRecording]:
    """Yield the recordings that have a plan; imported ones have none."""
    for recording in recordings:
        plan = find_plan(recording.journal)
        if plan is not None:
            yield PlannedRecording(recording, plan)


def group_by_settings(recordings: Iterable[PlannedRecording]) -> list[list[PlannedRecording]]:
    """Group recordings by their settings."""
    groups: defaultdict[str, list[PlannedRecording]] = defaultdict(list)
    for planned in recordings:
        groups[planned.settings].append(planned)
    return [groups[settings] for settings in sorted(groups)]


class IncidentCalibration:
    """Results of the tests behind the verdicts, in healthy windows of recordings with the same settings.

    As for episodes, windows in which the client test fires do not count for the latent test, because incidents that
    clients notice are not judged by it.

    Parameters
    ----------
    group
        Recordings with the same settings.
    report
        Called after each recording.
    """

    def __init__(self, group: Sequence[PlannedRecording], report: Callable[[], None] = lambda: None) -> None:
        self._group = group
        incidents = (incident for planned in group for incident in planned.recording.truth.incidents)
        durations = (incident.fault_duration_ns for incident in incidents)
        lengths_ns = [duration_ns for duration_ns in durations if duration_ns is not None]
        self._lengths_ns = lengths_ns or [round(group[0].plan.phases.fault_s * SECOND_NS)]
        self._windows = self._alarms = 0
        self._scores: defaultdict[int, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._onsets: defaultdict[int, int] = defaultdict(int)
        next_lengths = cycle(self._lengths_ns)
        for planned in group:
            for onset_ns, last_ns in planned.healthy_onsets():
                if onset_ns + min(self._lengths_ns) <= last_ns:
                    self._test(planned, onset_ns, last_ns - onset_ns, next(next_lengths))
            report()

    def _test(self, planned: PlannedRecording, onset_ns: int, room_ns: int, length_ns: int) -> None:
        """Test client requests in one window of a given length, and services in windows of all lengths that fit."""
        windows = planned.windows_around(onset_ns, min(length_ns, room_ns))
        requests = planned.recording.table("requests", windows.start_ns, windows.end_ns).to_pandas()
        load_varies = not planned.plan.traffic.pattern.is_constant
        impact = client_impact(requests, None, windows, load_varies=load_varies)
        if unsteady_reason(impact.earlier_changes):
            return
        self._windows += 1
        self._alarms += impact.is_manifest
        if impact.is_manifest:
            return
        lengths_ns = sorted(length_ns for length_ns in {*self._lengths_ns} if length_ns <= room_ns)
        wide = planned.read_wide(planned.windows_around(onset_ns, lengths_ns[-1]))
        for length_ns in lengths_ns:
            windows = planned.windows_around(onset_ns, length_ns)
            replaced_services = planned.list_replaced_services(windows)
            values = [score.score for score in _score_services(wide, windows) if score.service not in replaced_services]
            self._scores[length_ns][planned.recording.id] += values
            self._onsets[length_ns] += 1

    def scores(self, length_ns: int) -> list[float]:
        """Return the scores of services in healthy windows of this length."""
        return [score for values in self._scores[length_ns].values() for score in values]

    def limit(self, length_ns: int) -> float | None:
        """Return the limit of the latent test for incidents of this length; None with too few windows."""
        return compute_limit(self.scores(length_ns), minimum=MIN_FOR_QUANTILE)

    def describe_limit(self, length_ns: int) -> str:
        """Describe the limit for incidents of this length, or say why it is missing."""
        limit, count = self.limit(length_ns), len(self.scores(length_ns))
        windows = f"{count} windows of services at {self._onsets[length_ns]} times without a fault"
        if limit is None:
            return f"not applied, because {MIN_FOR_QUANTILE} healthy windows are needed, but there are {windows}"
        return f"limit {limit:.2f}, which 1 % of {windows} exceed"

    def false_alarms(self) -> FalseAlarms:
        """Return how often the tests fire, with the limit for the median window length."""
        plan, length_ns = self._group[0].plan, median_low(self._lengths_ns)
        above_count, tested_count = cross_validate_limit(self._scores[length_ns], minimum=MIN_FOR_QUANTILE)
        return FalseAlarms(
            app=plan.app,
            platform=plan.platform,
            load=plan.traffic.name,
            step_s=plan.step_s,
            recordings=len(self._group),
            windows=self._windows,
            client_alarms=self._alarms,
            client_interval=compute_binomial_interval(self._alarms, self._windows) if self._windows else None,
            service_windows=len(self.scores(length_ns)),
            limit=self.limit(length_ns),
            tested=tested_count,
            latent_alarms=above_count,
            latent_interval=compute_binomial_interval(above_count, tested_count) if tested_count else None,
        )


def judge_incident(
    planned: PlannedRecording, incident: Incident, calibration: IncidentCalibration
) -> tuple[Incident, list[dict[str, Any]]]:
    """Judge an incident by the latent test if its verdict is unknown; return it with the new rows of evidence.

    The rows replace earlier rows of the same check. If the test does not apply, they give the reason, and the verdict
    remains unknown.
    """
    windows = _find_windows(planned, incident)
    if incident.verdict != "unknown" or windows is None:
        return incident, []
    length_ns = windows.end_ns - windows.onset_ns
    reason = _find_obstacle(planned, incident, windows)
    limit, rule = (None, reason) if reason else (calibration.limit(length_ns), calibration.describe_limit(length_ns))
    healthy = calibration.scores(length_ns)
    rows = []
    for score in select_scores(incident.targets, _score_services(planned.read_wide(windows), windows)):
        p_value = None if limit is None else (sum(other >= score.score for other in healthy) + 1) / (len(healthy) + 1)
        row = latent_evidence(score, limit, rule, p_value=p_value)
        rows.append({"incident": incident.incident} | row)
    if limit is None:
        return incident, rows
    return replace(incident, verdict="latent" if any(row["passed"] for row in rows) else "silent"), rows


def _find_windows(planned: PlannedRecording, incident: Incident) -> ComparisonWindows | None:
    """Return the windows by which an incident was judged when it was recorded; None without enough healthy time."""
    onset_ns, end_ns = incident.inject_start_ns, incident.recover_start_ns
    if onset_ns is None or end_ns is None or end_ns <= onset_ns:
        return None
    truth = planned.recording.truth
    segment = next((s for s in planned.recording.view.segments if s.start_ns <= onset_ns < s.end_ns), None)
    if segment is None:
        return None
    ends = [truth.bounds(other)[1] for other in truth.incidents if (other.inject_start_ns or 0) < onset_ns]
    start_ns = max([segment.start_ns, onset_ns - planned.baseline_ns, *ends])
    if onset_ns - start_ns < MIN_HEALTHY_SHARE * planned.baseline_ns:
        return None
    return ComparisonWindows.around(onset_ns, start_ns=start_ns, end_ns=end_ns)


def _find_obstacle(planned: PlannedRecording, incident: Incident, windows: ComparisonWindows) -> str:
    """Return why the latent test does not apply to an incident; empty if it does."""
    truth = planned.recording.truth
    for other in truth.incidents:
        start_ns, end_ns = truth.bounds(other)
        if other.incident != incident.incident and start_ns < windows.end_ns and end_ns > windows.start_ns:
            return "not applied, because another incident overlaps"
    if any(void.overlaps(windows.start_ns, windows.end_ns) for void in truth.void_stretches):
        return "not applied, because it overlaps void time"
    if not planned.list_replaced_services(windows).isdisjoint(incident.targets):
        return "not applied, because a harmless change replaced the target's pods"
    return ""
