"""Verdicts of episodes that were collected before their application was calibrated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pandas as pd

from faultset.collector.plans.plan import Plan
from faultset.collector.verdicts.calibration import Calibration, shipped, threshold_of
from faultset.core.command_line.progress import Progress, StepCounter
from faultset.core.files import translate_write_errors
from faultset.core.locks.new_folder import new_folder
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.episode import Episode
from faultset.datasets.format.labels import Label
from faultset.datasets.format.storage import translate_disk_full
from faultset.datasets.format.truth import read_journal
from faultset.datasets.format.versions import create_version
from faultset.datasets.rewriting import write_again

UNKNOWN = "unknown"


def judge_again(
    root: Path | str,
    out: Path | str,
    *,
    calibrations: Iterable[Calibration] | None = None,
    version: str | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Write a version of a dataset in a new folder with a verdict for episodes that had none, and open it.

    An episode of the verdict `unknown` becomes latent where the score of a target, which its evidence has, is above the
    limit for its application, platform, step and load, and silent otherwise. Where there is no limit, and in all other
    episodes, nothing changes.

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
            episode = dataset.episode(name)
            label, evidence = later_verdict(episode, known)
            judged += label.verdict != episode.label.verdict
            write_again(episode, folder, label=label, evidence=evidence)
            steps.add()
        source = {"version": dataset.version, "created": dataset.created, "judged": judged}
        provenance = dict(dataset.provenance) | {"judged_from": source}
        create_version(folder, provenance=provenance, splits=dataset.manifest.splits)
    return open_dataset(out)


def later_verdict(episode: Episode, calibrations: Iterable[Calibration]) -> tuple[Label, pd.DataFrame]:
    """Return label and evidence of an episode, with a verdict in place of `unknown` where there is a limit now."""
    label, evidence = episode.label, episode.evidence
    plan = next((record["args"] for record in read_journal(episode.path) if record.get("verb") == "plan"), None)
    if label.verdict != UNKNOWN or plan is None:
        return label, evidence
    known = Plan.from_json(plan)
    limit = threshold_of(calibrations, known.app, known.platform, known.step_s, known.traffic.name)
    latent = evidence["check"] == "latent"
    if limit is None or not latent.any():
        return label, evidence
    above = latent & (evidence["statistic"] > limit)
    details = [f"largest robust |z| kept for three samples {z:.1f}, limit {limit:.1f}" for z in evidence["statistic"]]
    evidence = evidence.assign(
        passed=evidence["passed"].where(~latent, above), detail=evidence["detail"].where(~latent, details)
    )
    return replace(label, verdict="latent" if above.any() else "silent"), evidence
