"""Judge episodes and incidents again with limits that were measured later."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd

from faultset.collector.apps import load_app
from faultset.collector.faults.registry import faults
from faultset.collector.plans.plan import Plan, find_plan
from faultset.collector.verdicts.incident_verdicts import (
    IncidentCalibration,
    PlannedRecording,
    find_planned_recordings,
    group_by_settings,
    judge_incident,
)
from faultset.collector.verdicts.latent import Calibration, find_threshold, load_calibrations, rolled_out_services
from faultset.collector.verdicts.verdict import LATENT, judge_episode
from faultset.core.files import translate_write_errors
from faultset.core.locks import new_folder
from faultset.core.output import Progress, StepCounter
from faultset.datasets.compaction import copy_episode
from faultset.datasets.dataset import Dataset, Episode, open_dataset
from faultset.datasets.derivation import copy_unit
from faultset.datasets.format.cards import FALSE_ALARMS, JUDGED_FROM
from faultset.datasets.format.incidents import chunk_truth, replace_truth
from faultset.datasets.format.labels import Label, read_journal
from faultset.datasets.format.recordings import RECORDINGS
from faultset.datasets.format.storage import translate_disk_full
from faultset.datasets.format.versions import create_version

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
      same settings; see `incident_verdicts`. Only rows of incidents and evidence change.
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
    """Return a label whose root causes accept the names of this release."""
    specs = faults()
    if not all(planned.fault in specs for planned in plan.faults):
        return label
    app = load_app(plan.app_file or plan.app)
    names = {planned.target: specs[planned.fault].accepted_names(app, planned.target) for planned in plan.faults}
    causes = tuple(replace(cause, accepted=names.get(cause.service, cause.accepted)) for cause in label.root_causes)
    return replace(label, root_causes=causes)
