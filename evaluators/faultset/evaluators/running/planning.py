"""From a dataset and a choice of baselines to units of work."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from faultset.datasets.errors import DataError, UsageError
from faultset.evaluators.rows import Truth, code_version, library_versions, settings_hash
from faultset.evaluators.running.folds import CROSS, Fold, cross_folds, folds_of_split
from faultset.evaluators.running.runner import Limits
from faultset.evaluators.running.tasks import Common, EpisodeBatch, FitBatch, Subject, divide
from faultset.evaluators.running.truths import truth_of
from faultset.evaluators.running.work import Lessons

if TYPE_CHECKING:
    from faultset.baselines.registry import BaselineSpec
    from faultset.datasets.versions import Dataset

ALARM_DETECTOR = "ksigma"
SEEDS_OF_STOCHASTIC = 5
TASKS = ("detection", "localization")
PROTOCOLS = ("detected", "oracle")
_PIECES_PER_WORKER = 3


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What an evaluation is asked to do."""

    tasks: tuple[str, ...] = TASKS
    protocols: tuple[str, ...] = PROTOCOLS
    split: str | None = None
    """Published split; None scores every episode with two-fold training on healthy episodes."""
    seed: int = 0
    limits: Limits = field(default_factory=Limits)
    alarm_detector: str = ALARM_DETECTOR

    def for_rows(self) -> dict[str, object]:
        """Return what an answer can depend on, as it enters the settings hash."""
        return {
            "alarm_detector": self.alarm_detector,
            "timeout_s": self.limits.timeout_s,
            "memory_bytes": self.limits.memory_bytes,
            "split": self.split or CROSS,
        }


@dataclass(frozen=True, kw_only=True)
class Source:
    """A dataset version as an evaluation needs it."""

    name: str
    version: str
    digest: str
    """SHA-256 of the version's list of files."""
    folder: Path
    truths: tuple[Truth, ...]
    splits: dict[str, dict[str, list[str]]]

    @classmethod
    def of(cls, dataset: Dataset) -> Source:
        """Read the labels of all episodes of an opened dataset version."""
        root = Path(dataset.root).resolve()
        if not dataset.episodes:
            raise DataError(f"{root} version {dataset.version} has no episodes; collect some first")
        listing = root / "versions" / f"{dataset.version}.json"
        truths = tuple(truth_of(dataset.label(episode), dataset.view(episode).context) for episode in dataset.episodes)
        return cls(
            name=root.name,
            version=dataset.version,
            digest=hashlib.sha256(listing.read_bytes()).hexdigest(),
            folder=root,
            truths=truths,
            splits={name: dict(split) for name, split in dataset.splits.items()},
        )

    def episode_folder(self, episode: str) -> str:
        """Path of an episode's folder."""
        return str(self.folder / "episodes" / episode)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All units of work of an evaluation."""

    source: Source
    settings: Settings
    specs: tuple[BaselineSpec, ...]
    folds: tuple[Fold, ...]
    fits: tuple[FitBatch, ...]
    batches: tuple[EpisodeBatch, ...]

    @property
    def answers(self) -> int:
        """Number of rows."""
        return sum(batch.answers for batch in self.batches)

    @property
    def steps(self) -> int:
        """Number of steps that progress is reported for: fits and answers."""
        return self.answers + sum(len(fit.subjects) for fit in self.fits)


def make_plan(
    source: Source,
    specs: Sequence[BaselineSpec],
    settings: Settings,
    workers: int,
    find: Callable[[str], BaselineSpec],
) -> Plan:
    """Divide an evaluation into units of work.

    `find` looks up the named alarm detector, which is fitted and asked even when it is not among `specs`.
    """
    chosen = [spec for spec in specs if spec.task in settings.tasks]
    if not chosen:
        raise UsageError(
            f'none of the chosen baselines is for {" or ".join(settings.tasks)}; see "faultset list baselines"'
        )
    faulty = sum(truth.faulty for truth in source.truths)
    localizers = [spec for spec in chosen if spec.task == "localization"]
    if localizers and not faulty:
        if len(localizers) == len(chosen):
            raise DataError(
                f"{source.folder} version {source.version} has no fault episodes, so there is nothing to "
                "localize; use --tasks detection, or collect episodes with faults"
            )
        chosen = [spec for spec in chosen if spec.task != "localization"]
        localizers = []
    folds = (
        folds_of_split(settings.split, source.splits, source.truths) if settings.split else cross_folds(source.truths)
    )
    subjects = [subject for spec in chosen for subject in _subjects(spec, settings)]
    alarm = None
    if localizers and "detected" in settings.protocols:
        alarm = _subjects(find(settings.alarm_detector), settings)[0]
    fitted = subjects
    if alarm is not None and all((s.name, s.seed) != (alarm.name, alarm.seed) for s in subjects):
        fitted = [*subjects, alarm]
    by_episode = {truth.episode: truth for truth in source.truths}
    tested = sum(len(fold.test) for fold in folds)
    pieces = max(1, math.ceil(_PIECES_PER_WORKER * workers / tested))
    common = Common(
        dataset=source.name,
        version=source.version,
        split=settings.split or CROSS,
        code=code_version(),
        libraries=library_versions(),
    )
    fits, batches = [], []
    for fold in folds:
        folders = tuple(source.episode_folder(episode) for episode in fold.train)
        lessons = _lessons([by_episode[episode] for episode in fold.lessons])
        fits += [
            FitBatch(fold=fold.number, folders=folders, subjects=part, lessons=lessons, limits=settings.limits)
            for part in divide(fitted, workers)
        ]
        for episode in fold.test:
            batches += [
                EpisodeBatch(
                    fold=fold.number,
                    folder=source.episode_folder(episode),
                    truth=by_episode[episode],
                    subjects=part,
                    protocols=settings.protocols,
                    alarm=alarm if by_episode[episode].faulty else None,
                    limits=settings.limits,
                    common=common,
                )
                for part in divide(subjects, pieces)
            ]
    return Plan(
        source=source,
        settings=settings,
        specs=tuple(chosen),
        folds=tuple(folds),
        fits=tuple(fits),
        batches=tuple(batches),
    )


def _lessons(truths: Sequence[Truth]) -> Lessons:
    causes = Counter(names[0] for truth in truths for names in truth.causes)
    return Lessons(
        cause_counts=tuple(sorted(causes.items())),
        onset_shares=tuple(
            (truth.onset_ns - truth.view_start_ns) / (truth.view_end_ns - truth.view_start_ns)
            for truth in truths
            if truth.onset_ns is not None
        ),
    )


def _subjects(spec: BaselineSpec, settings: Settings) -> list[Subject]:
    import cloudpickle

    payload = cloudpickle.dumps(spec)
    seeds = range(settings.seed, settings.seed + SEEDS_OF_STOCHASTIC) if spec.stochastic else [0]
    return [
        Subject(
            name=spec.name,
            kind=spec.kind,
            task=spec.task,
            needs=tuple(sorted(spec.needs)),
            seed=seed,
            spec=payload,
            settings=settings_hash({"baseline": spec.name, **settings.for_rows()}),
        )
        for seed in seeds
    ]
