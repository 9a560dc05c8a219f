"""Judge episodes and incidents again with limits that were measured later.

Recordings with the same settings are calibrated together. Place windows of the incidents' lengths in the healthy
stretches of these recordings, and score each service in each window. An incident is latent if its target's score
exceeds the limit that 1 % of the healthy scores exceed. The test of client requests runs on the healthy windows too,
which measures its false alarms. Windows may contain decoys. A service whose pods a decoy replaced is not scored, and an
incident with such a target is not judged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import cycle
from pathlib import Path
from statistics import median_low
from typing import Any

import pandas as pd

from faultset.collector.apps import load_app
from faultset.collector.faults.registry import faults
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
    Calibration,
    LatentScore,
    compute_limit,
    cross_validate_limit,
    find_threshold,
    load_calibrations,
    rolled_out_services,
    service_scores,
)
from faultset.collector.verdicts.verdict import (
    LATENT,
    drop_added_metrics,
    judge_episode,
    latent_evidence,
    select_scores,
)
from faultset.core.files import canonical_json, translate_write_errors
from faultset.core.locks import new_folder
from faultset.core.output import Progress, StepCounter
from faultset.core.times import SECOND_NS
from faultset.datasets.compaction import copy_episode
from faultset.datasets.dataset import Dataset, Episode, open_dataset
from faultset.datasets.derivation import copy_unit
from faultset.datasets.format.cards import FALSE_ALARMS, JUDGED_FROM, FalseAlarms
from faultset.datasets.format.incidents import Incident, chunk_truth, replace_truth
from faultset.datasets.format.labels import Label, read_journal
from faultset.datasets.format.recordings import RECORDINGS
from faultset.datasets.format.storage import translate_disk_full
from faultset.datasets.format.versions import create_version
from faultset.datasets.metrics.frames import wide_frame
from faultset.datasets.metrics.roles import Catalogue, MetricRole
from faultset.datasets.recordings.recording import Recording

UNKNOWN = "unknown"
NOT_MANIFEST = ("latent", "silent", UNKNOWN)


def judge_again(
    root: Path | str,
    out: Path | str,
    *,
    calibrations: Iterable[Calibration] | None = None,
    version: str | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Write a copy of a dataset in which unknown verdicts are judged again, and open it.

    - An episode that was not manifest becomes manifest if spans of a queue show unprocessed messages.
    - Otherwise, an `unknown` episode becomes latent if a target's score exceeds the limit for its application,
      platform, step and load, and silent if not. Without a limit, it remains unknown.
    - An `unknown` incident of a recording becomes latent or silent by the healthy windows of the recordings with the
      same settings. Only rows of incidents and evidence change.
    - Episodes get the accepted names of root causes that this release defines.

    Parameters
    ----------
    root
        Dataset folder; it is only read.
    out
        Target folder; must not exist or must be empty.
    calibrations
        Calibrations for episodes; by default, the ones in this release.
    version
        Version to read; by default, the newest.
    progress
        Called with the number of finished steps and the total; a recording counts as two.

    Raises
    ------
    DataError
        The dataset is damaged, or `out` is not empty.
    """
    dataset = open_dataset(root, version)
    dataset.check_files()
    out = Path(out)
    with translate_disk_full(out.parent), translate_write_errors(out), new_folder(out, "judging") as folder:
        steps = StepCounter(len(dataset.episodes) + 2 * len(dataset.recording_files), progress)
        judged_count = _judge_episodes(dataset, folder, calibrations, steps)
        source = {"version": dataset.version, "created": dataset.created, "judged": judged_count}
        source |= _judge_recordings(dataset, folder, steps) if dataset.recording_files else {}
        create_version(
            folder,
            provenance=dict(dataset.provenance) | {JUDGED_FROM: source},
            splits_of=dataset.version_file,
            recordings=dataset.recorded_chunks,
        )
    return open_dataset(out)


def _judge_episodes(
    dataset: Dataset, folder: Path, calibrations: Iterable[Calibration] | None, steps: StepCounter
) -> int:
    """Copy every episode with its new verdict into a folder; return the number of changed verdicts."""
    calibrations = tuple(load_calibrations() if calibrations is None else calibrations)
    changed = 0
    for episode in dataset:
        label, evidence = judge_later(episode, calibrations)
        changed += label.verdict != episode.label.verdict
        copy_episode(episode, folder, label=label, evidence=evidence)
        steps.add()
    return changed


def _judge_recordings(dataset: Dataset, folder: Path, steps: StepCounter) -> dict[str, Any]:
    """Copy the recordings with new verdicts, and return the facts about them for the version."""
    for recording in dataset.recording_files:
        copy_unit(dataset, f"{RECORDINGS}/{recording}", folder)
        steps.add()
    alarms: list[dict[str, Any]] = []
    judged_count = 0
    groups = group_by_settings(find_planned_recordings(dataset.recordings()))
    for group in groups:
        calibration = IncidentCalibration(group, steps.add)
        alarms.append(asdict(calibration.false_alarms()))
        judged_count += sum(_write_verdicts(planned, calibration, folder) for planned in group)
    steps.finish()
    return {"incidents_judged": judged_count, FALSE_ALARMS: alarms}


def _write_verdicts(planned: PlannedRecording, calibration: IncidentCalibration, folder: Path) -> int:
    """Write the new verdicts into the copy of a recording, and return their number."""
    recording, copy = planned.recording, folder / RECORDINGS / planned.recording.id
    judgements = [judge_incident(planned, incident, calibration) for incident in recording.truth.incidents]
    rows = {incident.incident: evidence for incident, evidence in judgements if evidence}
    judged_rows = {incident.incident: incident.as_row() for incident, _ in judgements if incident.incident in rows}
    truths = {chunk: chunk_truth(recording.path, chunk) for chunk in recording.view.chunks}
    last_chunks = {row["incident"]: chunk for chunk, truth in truths.items() for row in truth["incidents"]}
    for chunk, truth in truths.items():
        incident_names = [name for name in rows if last_chunks[name] == chunk]
        incidents = [
            judged_rows[name] if (name := row["incident"]) in incident_names else row for row in truth["incidents"]
        ]
        evidence = [row for row in truth["evidence"] if row["check"] != LATENT or row["incident"] not in rows]
        evidence += [row for name in incident_names for row in rows[name]]
        for table, changed in (("incidents", incidents), ("evidence", evidence)):
            if changed != truth[table]:
                replace_truth(copy, chunk, table, changed)
    return sum(incident["verdict"] != UNKNOWN for incident in judged_rows.values())


def judge_later(episode: Episode, calibrations: Iterable[Calibration]) -> tuple[Label, pd.DataFrame]:
    """Judge an episode by its unprocessed messages and the given calibrations; return its label and evidence."""
    plan = find_plan(read_journal(episode.path))
    if plan is None:
        return episode.label, episode.evidence
    label, evidence = update_accepted_names(episode.label, plan), episode.evidence
    if label.inject_start_ns is None or label.verdict not in NOT_MANIFEST:
        return label, evidence
    judgement = judge_episode(
        episode.view,
        plan,
        onset_ns=label.inject_start_ns,
        limit=find_threshold(calibrations, plan.app, plan.platform, plan.step_s, plan.traffic.name),
        rolled_out=rolled_out_services(evidence),
    )
    if judgement.verdict == UNKNOWN or (label.verdict != UNKNOWN and judgement.verdict != "manifest"):
        return label, evidence
    rows = pd.DataFrame(judgement.evidence).assign(episode=episode.id).reindex(columns=evidence.columns)
    others = evidence[~evidence["check"].isin(["sli", "sli-before", LATENT])]
    evidence = pd.concat([others, rows], ignore_index=True).astype(evidence.dtypes)
    return replace(label, verdict=judgement.verdict, first_manifest_ns=judgement.first_manifest_ns), evidence


def update_accepted_names(label: Label, plan: Plan) -> Label:
    """Return the label with the accepted names that this release defines for each root cause."""
    specs = faults()
    if not all(planned.fault in specs for planned in plan.faults):
        return label
    app = load_app(plan.app_file or plan.app)
    names = {planned.target: specs[planned.fault].accepted_names(app, planned.target) for planned in plan.faults}
    causes = tuple(replace(cause, accepted=names.get(cause.service, cause.accepted)) for cause in label.root_causes)
    return replace(label, root_causes=causes)


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
    groups: defaultdict[str, list[PlannedRecording]] = defaultdict(list)
    for planned in recordings:
        groups[planned.settings].append(planned)
    return [groups[settings] for settings in sorted(groups)]


class IncidentCalibration:
    """Results of the tests behind the verdicts, in healthy windows of recordings with the same settings.

    As for episodes, windows in which the client test fires do not count for the latent test, because incidents that
    clients notice are not judged by it. `report` is called after each recording.
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
                    self._test_windows(planned, onset_ns, last_ns - onset_ns, next(next_lengths))
            report()

    def _test_windows(self, planned: PlannedRecording, onset_ns: int, room_ns: int, length_ns: int) -> None:
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
        return [score for values in self._scores[length_ns].values() for score in values]

    def limit(self, length_ns: int) -> float | None:
        """Return the limit of the latent test for incidents of this length; None with too few windows."""
        return compute_limit(self.scores(length_ns), minimum=MIN_FOR_QUANTILE)

    def describe_limit(self, length_ns: int) -> str:
        """Describe the limit for incidents of this length, or say why it is missing."""
        limit, count = self.limit(length_ns), len(self.scores(length_ns))
        windows = f"{count} service windows at {self._onsets[length_ns]} times without a fault"
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
