"""Judge episodes again that were collected before a calibration or the test of messages existed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pandas as pd

from faultset.collector.apps import load_app
from faultset.collector.faults.registry import faults
from faultset.collector.plans.plan import Plan
from faultset.collector.verdicts.latent import Calibration, find_threshold, load_calibrations, rolled_out_services
from faultset.collector.verdicts.verdict import judge_episode
from faultset.core.command_line.progress import Progress, StepCounter
from faultset.core.files import translate_write_errors
from faultset.core.locks import new_folder
from faultset.datasets.compaction import copy_episode
from faultset.datasets.dataset import Dataset, Episode, open_dataset
from faultset.datasets.format.labels import Label, read_journal
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
    """Write a version of a dataset in a new folder with verdicts for episodes without one, and open it.

    - An episode that was not manifest becomes manifest if spans of a queue show unprocessed messages.
    - Otherwise, an `unknown` episode becomes latent if a target's score exceeds the limit for its application,
      platform, step and load, and silent if not. Without a limit, it stays unknown.
    - Accepted names of root causes are those of this release.

    Parameters
    ----------
    root
        Dataset folder; it is only read.
    out
        Target folder; must not exist or must be empty.
    calibrations
        Calibrations; by default, those of this release.
    version
        Version to read; by default, the newest.
    progress
        Called with the number of finished episodes and of all episodes.

    Raises
    ------
    DataError
        The dataset is damaged, or `out` is not empty.
    """
    calibrations = tuple(load_calibrations() if calibrations is None else calibrations)
    dataset = open_dataset(root, version)
    dataset.check_files()
    out = Path(out)
    judged = 0
    with translate_disk_full(out.parent), translate_write_errors(out), new_folder(out, "judging") as folder:
        steps = StepCounter(len(dataset.episodes), progress)
        for name in dataset.episodes:
            episode = dataset[name]
            label, evidence = judge_later(episode, calibrations)
            judged += label.verdict != episode.label.verdict
            copy_episode(episode, folder, label=label, evidence=evidence)
            steps.add()
        source = {"version": dataset.version, "created": dataset.created, "judged": judged}
        provenance = dict(dataset.provenance) | {"judged_from": source}
        create_version(folder, provenance=provenance, splits=dataset.version_file.splits)
    return open_dataset(out)


def judge_later(episode: Episode, calibrations: Iterable[Calibration]) -> tuple[Label, pd.DataFrame]:
    """Return label and evidence of an episode by its messages and the given calibrations."""
    record = next((record["args"] for record in read_journal(episode.path) if record.get("verb") == "plan"), None)
    if record is None:
        return episode.label, episode.evidence
    plan = Plan.from_json(record)
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
    others = evidence[~evidence["check"].isin(["sli", "sli-before", "latent"])]
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
