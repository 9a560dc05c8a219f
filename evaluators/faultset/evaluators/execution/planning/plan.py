"""From a dataset and a choice of baselines to units of work."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from faultset.core.errors import DataError, UsageError
from faultset.evaluators.execution.dataset_source import Source
from faultset.evaluators.execution.planning.alarm_sources import trigger_of
from faultset.evaluators.execution.planning.baseline_runs import Common, Subject
from faultset.evaluators.execution.planning.folds import CROSS, Fold, cross_folds, folds_of_split
from faultset.evaluators.execution.planning.training_labels import label_of, lessons_of, most_usual
from faultset.evaluators.execution.runners.runner import Limits
from faultset.evaluators.execution.runners.work import Parcel
from faultset.evaluators.execution.tasks import EpisodeBatch, FitBatch
from faultset.evaluators.results.provenance import code_version, library_versions, settings_hash
from faultset.evaluators.results.rows import Key, ResultRow, Truth

if TYPE_CHECKING:
    from faultset.baselines.api.registry import BaselineSpec

ALARM_DETECTOR = "ksigma"
SEEDS_OF_STOCHASTIC = 5
TASKS = ("detection", "localization", "rca")
PROTOCOLS = ("detected", "oracle")
_PIECES_PER_WORKER = 3
Find = Callable[[str], "BaselineSpec"]


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
    delays: tuple[float, ...] = ()
    """Seconds after the onset at which localizers are also told an alarm."""
    calibrate: bool = False
    """Ask detectors about training episodes, from which threshold policies other than `reference` are made."""

    def for_rows(self) -> dict[str, object]:
        """Return what an answer can depend on, as it enters the settings hash."""
        return {
            "alarm_detector": self.alarm_detector,
            "timeout_s": self.limits.timeout_s,
            "memory_bytes": self.limits.memory_bytes,
            "split": self.split or CROSS,
        }


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All units of work of an evaluation."""

    source: Source
    settings: Settings
    specs: tuple[BaselineSpec, ...]
    folds: tuple[Fold, ...]
    common: Common
    fits: tuple[FitBatch, ...]
    batches: tuple[EpisodeBatch, ...]
    kept: tuple[ResultRow, ...] = ()
    """Rows of an interrupted evaluation that need not be asked for again."""

    @property
    def answers(self) -> int:
        """Number of rows that are still to come."""
        return sum(batch.answers(self.common) for batch in self.batches)

    @property
    def steps(self) -> int:
        """Number of steps that progress is reported for: fits and answers."""
        return self.answers + sum(len(fit.subjects) for fit in self.fits)


def make_plan(
    source: Source,
    specs: Sequence[BaselineSpec],
    settings: Settings,
    workers: int,
    find: Find,
    *,
    kept: Iterable[ResultRow] = (),
) -> Plan:
    """Divide an evaluation into units of work.

    `find` looks up detectors that are fitted and asked for their alarm even when they are not among `specs`. What
    `kept` answers is left out.
    """
    chosen = _answerable(source, specs, settings)
    folds = (
        folds_of_split(settings.split, source.splits, source.truths) if settings.split else cross_folds(source.truths)
    )
    subjects, scored, alarm = _everybody(chosen, settings, find)
    by_episode = {truth.episode: truth for truth in source.truths}
    lessons = {fold.number: [by_episode[episode] for episode in (*fold.lessons, *fold.train)] for fold in folds}
    common = Common(
        dataset=source.name,
        version=source.version,
        split=settings.split or CROSS,
        code=code_version(),
        libraries=library_versions(),
        limits=settings.limits,
        protocols=settings.protocols,
        delays=settings.delays,
        subjects=subjects,
        usual={number: pair for number, truths in lessons.items() if (pair := most_usual(truths)) is not None},
    )
    answered = {row.key: row for row in kept}
    used: dict[Key, ResultRow] = {}
    batches, fits = [], []
    tested = sum(len(fold.test) for fold in folds)
    pieces = max(1, math.ceil(_PIECES_PER_WORKER * workers / tested))
    for fold in folds:
        mine = []
        for episode in (*fold.test, *(fold.train if settings.calibrate else ())):
            calibration = episode not in fold.test
            batch = EpisodeBatch(
                fold=fold.number,
                place=source.place(episode),
                truth=by_episode[episode],
                subjects=(),
                alarm=None if calibration else alarm,
                triggers={} if calibration else _triggers(subjects),
                calibration=calibration,
            )
            owing = []
            for number in scored:
                if calibration and subjects[number].task != "detection":
                    continue
                keys = _keys(batch, subjects[number], common)
                if keys and all(key in answered for key in keys):
                    used |= {key: answered[key] for key in keys}
                elif keys:
                    owing.append(number)
            mine += [_with(batch, part) for part in divide(owing, pieces)]
        batches += mine
        fits += _fits(fold, mine, common, source, by_episode, workers)
    return Plan(
        source=source,
        settings=settings,
        specs=tuple(chosen),
        folds=tuple(folds),
        common=common,
        fits=tuple(fits),
        batches=tuple(batches),
        kept=tuple(used.values()),
    )


def _answerable(source: Source, specs: Sequence[BaselineSpec], settings: Settings) -> list[BaselineSpec]:
    """Leave out baselines of tasks that nobody asked for or that this dataset cannot pose."""
    chosen = [spec for spec in specs if spec.task in settings.tasks]
    if not chosen:
        raise UsageError(
            f'none of the chosen baselines is for {" or ".join(settings.tasks)}; see "faultset list baselines"'
        )
    faulty = [truth for truth in source.truths if truth.faulty]
    impossible: dict[str, str] = {}
    if not faulty:
        impossible = dict.fromkeys(("localization", "rca"), "has no fault episodes")
    else:
        if not any(truth.causes for truth in faulty):
            impossible["localization"] = "names no candidate as root cause"
        if not any(truth.system_level and truth.fault_type for truth in faulty):
            impossible["rca"] = "does not say of which level and type its faults are"
    possible = [spec for spec in chosen if spec.task not in impossible]
    if not possible:
        task = chosen[0].task
        raise DataError(
            f"{source.url or source.folder} version {source.version} {impossible[task]}, so there is nothing to "
            f"{'localize' if task == 'localization' else 'diagnose'}; use --tasks detection, or other data"
        )
    return possible


def _everybody(
    chosen: Sequence[BaselineSpec], settings: Settings, find: Find
) -> tuple[tuple[Subject, ...], list[int], int | None]:
    """Return all subjects, which of them are scored, and who raises the alarm for the others."""
    subjects: list[Subject] = []
    scored: list[int] = []
    for spec in chosen:
        scored += range(len(subjects), len(subjects) + (SEEDS_OF_STOCHASTIC if spec.stochastic else 1))
        subjects += _subjects(spec, settings)
    helpers = sorted({subject.trigger for subject in subjects if subject.trigger})
    told = "detected" in settings.protocols and any(subject.task != "detection" for subject in subjects)
    if told:
        helpers.insert(0, settings.alarm_detector)
    for name in helpers if told else ():
        if all(subject.name != name for subject in subjects):
            subjects.append(_subjects(find(name), settings)[0])
    alarm = next((n for n, s in enumerate(subjects) if told and s.name == settings.alarm_detector), None)
    return tuple(subjects), scored, alarm


def _subjects(spec: BaselineSpec, settings: Settings) -> list[Subject]:
    import cloudpickle

    from faultset.baselines.api.contract import Untrained

    payload = Parcel.of(cloudpickle.dumps(spec))
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
            trigger=trigger_of(spec),
            learns=getattr(spec.factory, "fit", None) is not Untrained.fit,
        )
        for seed in seeds
    ]


def _triggers(subjects: Sequence[Subject]) -> dict[str, int]:
    wanted = {subject.trigger for subject in subjects if subject.trigger}
    found: dict[str, int] = {}
    for number, subject in enumerate(subjects):
        if subject.name in wanted:
            found.setdefault(subject.name, number)
    return found


def _keys(batch: EpisodeBatch, subject: Subject, common: Common) -> list[Key]:
    """Keys of the rows that a subject owes, as `ResultRow.key` gives them."""
    return [
        (
            subject.name,
            subject.settings,
            common.dataset,
            common.version,
            batch.truth.episode,
            subject.task,
            protocol,
            -1.0 if delay is None else delay,
            batch.fold,
            subject.seed,
        )
        for protocol, delay in batch.asked(subject, common)
    ]


def _with(batch: EpisodeBatch, subjects: tuple[int, ...]) -> EpisodeBatch:
    from dataclasses import replace

    return replace(batch, subjects=subjects)


def _fits(
    fold: Fold,
    batches: Sequence[EpisodeBatch],
    common: Common,
    source: Source,
    truths: dict[str, Truth],
    workers: int,
) -> list[FitBatch]:
    """Fit whoever will be asked, and the detectors whose alarms they are told."""
    needed: dict[int, None] = {}
    for batch in batches:
        for number in batch.subjects:
            needed[number] = None
            if common.subjects[number].task != "detection" and not batch.calibration:
                helpers = (batch.alarm, batch.triggers.get(common.subjects[number].trigger or ""))
                needed |= dict.fromkeys(helper for helper in helpers if helper is not None)
    return [
        FitBatch(
            fold=fold.number,
            healthy=tuple(source.place(episode) for episode in fold.train),
            faulty=tuple(source.place(episode) for episode in fold.lessons),
            labels=tuple(label_of(truths[episode]) for episode in (*fold.train, *fold.lessons)),
            subjects=part,
            lessons=lessons_of([truths[episode] for episode in fold.lessons]),
        )
        for part in divide(sorted(needed), workers)
    ]


def divide(items: Sequence[int], pieces: int) -> list[tuple[int, ...]]:
    """Deal items out in turn into at most `pieces` groups, none of them empty."""
    return [tuple(items[i::pieces]) for i in range(min(pieces, len(items)))]
