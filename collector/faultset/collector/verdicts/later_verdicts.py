"""Verdicts of episodes that were collected before their application was calibrated, or before messages were tested."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pandas as pd

from faultset.collector.apps import load_app
from faultset.collector.faults.registry import faults
from faultset.collector.plans.plan import Plan
from faultset.collector.verdicts.latent import Calibration, shipped, threshold_of
from faultset.collector.verdicts.verdict import judge_episode
from faultset.core.command_line.progress import Progress, StepCounter
from faultset.core.files import translate_write_errors
from faultset.core.locks import new_folder
from faultset.datasets.compaction import write_again
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
    """Write a version of a dataset in a new folder with a verdict for episodes that had none, and open it.

    An episode whose fault clients did not feel becomes manifest where the spans of a queue show that messages were left
    unprocessed. One of the verdict `unknown` becomes latent otherwise where the score of a target is above the limit
    for its application, platform, step and load, and silent where it is not; where there is no limit, it stays
    unknown. Names that find a root cause are those that this release accepts. All else stays.

    Parameters
    ----------
    root
        Dataset folder; it is only read.
    out
        Folder to make; it must not exist, or be empty.
    calibrations
        Those of this release by default.
    version
        The newest by default.
    progress
        Told how many episodes are finished, and of how many.

    Raises
    ------
    DataError
        The dataset is damaged, or `out` holds something.
    """
    known = tuple(shipped() if calibrations is None else calibrations)
    dataset = open_dataset(root, version)
    dataset.check_files()
    out = Path(out)
    judged = 0
    with translate_disk_full(out.parent), translate_write_errors(out), new_folder(out, "judging") as folder:
        steps = StepCounter(len(dataset.episodes), progress)
        for name in dataset.episodes:
            episode = dataset[name]
            label, evidence = later_verdict(episode, known)
            judged += label.verdict != episode.label.verdict
            write_again(episode, folder, label=label, evidence=evidence)
            steps.add()
        source = {"version": dataset.version, "created": dataset.created, "judged": judged}
        provenance = dict(dataset.provenance) | {"judged_from": source}
        create_version(folder, provenance=provenance, splits=dataset.manifest.splits)
    return open_dataset(out)


def later_verdict(episode: Episode, calibrations: Iterable[Calibration]) -> tuple[Label, pd.DataFrame]:
    """Return label and evidence of an episode, with what its messages show and with a limit that there is now."""
    plan = next((record["args"] for record in read_journal(episode.path) if record.get("verb") == "plan"), None)
    if plan is None:
        return episode.label, episode.evidence
    known = Plan.from_json(plan)
    label, evidence = with_accepted_names(episode.label, known), episode.evidence
    if label.inject_start_ns is None or label.verdict not in NOT_MANIFEST:
        return label, evidence
    judgement = judge_episode(
        episode.view,
        known,
        onset_ns=label.inject_start_ns,
        limit=threshold_of(calibrations, known.app, known.platform, known.step_s, known.traffic.name),
    )
    if judgement.verdict == UNKNOWN or (label.verdict != UNKNOWN and judgement.verdict != "manifest"):
        return label, evidence
    rows = pd.DataFrame(judgement.evidence).assign(episode=episode.id).reindex(columns=evidence.columns)
    others = evidence[~evidence["check"].isin(["sli", "sli-before", "latent"])]
    evidence = pd.concat([others, rows], ignore_index=True).astype(evidence.dtypes)
    return replace(label, verdict=judgement.verdict, first_manifest_ns=judgement.first_manifest_ns), evidence


def with_accepted_names(label: Label, plan: Plan) -> Label:
    """Return a label whose root causes are found by the names that the plan's faults have in this release."""
    known = faults()
    if not all(one.fault in known for one in plan.faults):
        return label
    app = load_app(plan.app_file or plan.app)
    names = {one.target: known[one.fault].accepted_names(app, one.target) for one in plan.faults}
    causes = tuple(replace(cause, accepted=names.get(cause.service, cause.accepted)) for cause in label.root_causes)
    return replace(label, root_causes=causes)
