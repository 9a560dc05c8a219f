"""The plan of an evaluation: from a dataset and a choice of baselines to batches of work."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from faultset.core.errors import DataError, UsageError
from faultset.evaluators.execution.baseline_runs import BaselineRun, RunContext
from faultset.evaluators.execution.batches import EpisodeBatch, FitBatch
from faultset.evaluators.execution.dataset_source import DatasetSource
from faultset.evaluators.execution.planning.folds import CROSS, Fold, folds_of_split
from faultset.evaluators.execution.planning.training_labels import label_of, majority_label_of
from faultset.evaluators.execution.runners.messages import Blob
from faultset.evaluators.execution.runners.outcomes import RunLimits
from faultset.evaluators.execution.runners.views import readable_tables
from faultset.evaluators.results.provenance import (
    code_version,
    library_versions,
    method_code,
    method_places,
    settings_hash,
)
from faultset.evaluators.results.rows import PROTOCOLS, TASKS, Key, ResultRow
from faultset.evaluators.results.truth import Truth

if TYPE_CHECKING:
    from faultset.baselines.api.registry import BaselineSpec

ALARM_DETECTOR = "ksigma"
SEEDS_OF_STOCHASTIC = 5
_PIECES_PER_WORKER = 3
Find = Callable[[str], "BaselineSpec"]


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """What an evaluation does."""

    tasks: tuple[str, ...] = TASKS
    protocols: tuple[str, ...] = PROTOCOLS
    split: str | None = None
    """Published split or scheme, see `folds_of_split`; None scores every episode in two folds."""
    seed: int = 0
    limits: RunLimits = field(default_factory=RunLimits)
    alarm_detector: str = ALARM_DETECTOR
    delays: tuple[float, ...] = ()
    """Seconds after the onset at which localizers are also given an alarm."""
    calibrate: bool = False
    """Run detectors on training episodes too, from which threshold policies other than `reference` are made."""

    def for_rows(self) -> dict[str, object]:
        """Return what an answer can depend on, as it enters the settings hash."""
        return {
            "alarm_detector": self.alarm_detector,
            "timeout_s": self.limits.timeout_s,
            "memory_bytes": self.limits.memory_bytes,
            "split": self.split or CROSS,
        }


@dataclass(frozen=True, kw_only=True)
class EvaluationPlan:
    """All batches of work of an evaluation."""

    source: DatasetSource
    settings: EvaluationSettings
    specs: tuple[BaselineSpec, ...]
    folds: tuple[Fold, ...]
    context: RunContext
    fits: tuple[FitBatch, ...]
    batches: tuple[EpisodeBatch, ...]
    kept: tuple[ResultRow, ...] = ()
    """Rows of an interrupted evaluation that are used again."""

    @property
    def answers(self) -> int:
        """Number of rows that are still to come."""
        return sum(batch.answers(self.context) for batch in self.batches)

    @property
    def steps(self) -> int:
        """Number of steps that progress is reported for: fits and answers."""
        return self.answers + sum(len(fit.runs) for fit in self.fits)


def make_plan(
    source: DatasetSource,
    specs: Sequence[BaselineSpec],
    settings: EvaluationSettings,
    workers: int,
    find: Find,
    *,
    kept: Iterable[ResultRow] = (),
    hidden: Iterable[Path] = (),
) -> EvaluationPlan:
    """Divide an evaluation into batches of work.

    `find` looks up detectors that are fitted and run for their alarm even when they are not among `specs`. Answers
    that are among `kept` are left out. Methods cannot read the files `hidden`.
    """
    chosen = choose_answerable(source, specs, settings)
    folds = folds_of(source, settings)
    runs, scored, alarm_run = _all_runs(chosen, settings, find)
    by_episode = {truth.episode: truth for truth in source.truths}
    training = {fold.number: [by_episode[e] for e in (*fold.faulty_train, *fold.train)] for fold in folds}
    context = RunContext(
        dataset=source.name,
        version=source.version,
        split=settings.split or CROSS,
        code=code_version(),
        libraries=library_versions(),
        limits=settings.limits,
        protocols=settings.protocols,
        delays=settings.delays,
        runs=runs,
        hidden=tuple(str(path) for path in hidden),
        majority_labels={
            number: label for number, truths in training.items() if (label := majority_label_of(truths)) is not None
        },
    )
    answered = {row.key: row for row in kept}
    used: dict[Key, ResultRow] = {}
    batches, fits = [], []
    tested = sum(len(fold.test) for fold in folds)
    pieces = max(1, math.ceil(_PIECES_PER_WORKER * workers / tested))
    for fold in folds:
        of_fold = []
        for episode in (*fold.test, *(fold.train if settings.calibrate else ())):
            calibration = episode not in fold.test
            batch = EpisodeBatch(
                fold=fold.number,
                location=source.location(episode),
                truth=by_episode[episode],
                runs=(),
                alarm_run=None if calibration else alarm_run,
                trigger_runs={} if calibration else _trigger_runs(runs),
                calibration=calibration,
            )
            missing = []
            for number in scored:
                if calibration and runs[number].task != "detection":
                    continue
                keys = _keys(batch, runs[number], context)
                if keys and all(key in answered for key in keys):
                    used |= {key: answered[key] for key in keys}
                elif keys:
                    missing.append(number)
            of_fold += [replace(batch, runs=part) for part in divide(missing, pieces)]
        batches += of_fold
        fits += _fits(fold, of_fold, context, source, by_episode, workers)
    return EvaluationPlan(
        source=source,
        settings=settings,
        specs=tuple(chosen),
        folds=tuple(folds),
        context=context,
        fits=tuple(fits),
        batches=tuple(batches),
        kept=tuple(used.values()),
    )


def check_choice(source: DatasetSource, specs: Sequence[BaselineSpec], settings: EvaluationSettings) -> None:
    """Raise what `make_plan` would raise about baselines, tasks and split, before anything is started."""
    choose_answerable(source, specs, settings)
    folds_of(source, settings)


def folds_of(source: DatasetSource, settings: EvaluationSettings) -> list[Fold]:
    """Return the folds that the settings ask for."""
    return folds_of_split(settings.split, source.splits, source.truths)


def choose_answerable(
    source: DatasetSource, specs: Sequence[BaselineSpec], settings: EvaluationSettings
) -> list[BaselineSpec]:
    """Leave out baselines of tasks that were not chosen or that this dataset cannot pose.

    Raises
    ------
    UsageError
        No baseline is for any of the chosen tasks.
    DataError
        The dataset poses none of the tasks that are left.
    """
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


def _all_runs(
    chosen: Sequence[BaselineSpec], settings: EvaluationSettings, find: Find
) -> tuple[tuple[BaselineRun, ...], list[int], int | None]:
    """Return all runs, which of them are scored, and which raises the alarm for the others."""
    runs: list[BaselineRun] = []
    scored: list[int] = []
    for spec in chosen:
        scored += range(len(runs), len(runs) + (SEEDS_OF_STOCHASTIC if spec.stochastic else 1))
        runs += _runs_of(spec, settings)
    helpers = sorted({run.trigger for run in runs if run.trigger})
    needed = "detected" in settings.protocols and any(run.task != "detection" for run in runs)
    if needed:
        helpers.insert(0, settings.alarm_detector)
    for name in helpers if needed else ():
        if all(run.name != name for run in runs):
            runs.append(_runs_of(find(name), settings)[0])
    alarm = next((n for n, run in enumerate(runs) if needed and run.name == settings.alarm_detector), None)
    return tuple(runs), scored, alarm


def _runs_of(spec: BaselineSpec, settings: EvaluationSettings) -> list[BaselineRun]:
    import cloudpickle

    from faultset.baselines.api.contract import Untrained

    payload = Blob.of(cloudpickle.dumps(spec))
    code = method_code(spec)
    places = () if code.built_in else method_places(spec)
    seeds = range(settings.seed, settings.seed + SEEDS_OF_STOCHASTIC) if spec.stochastic else [0]
    return [
        BaselineRun(
            name=spec.name,
            kind=spec.kind,
            task=spec.task,
            needs=tuple(sorted(spec.needs)),
            seed=seed,
            spec=payload,
            settings=settings_hash({"baseline": spec.name, **settings.for_rows()}),
            code=str(code),
            built_in=code.built_in,
            tables=tuple(sorted(readable_tables(spec))),
            places=places,
            trigger=spec.trigger,
            learns=getattr(spec.factory, "fit", None) is not Untrained.fit,
        )
        for seed in seeds
    ]


def codes_of(specs: Iterable[BaselineSpec], settings: EvaluationSettings, find: Find) -> dict[str, str]:
    """Return baseline -> identity of its code, for baselines and for the detectors whose alarms they are given."""
    chosen = {spec.name: spec for spec in specs}
    helpers = {spec.trigger for spec in chosen.values() if spec.trigger}
    if any(spec.task != "detection" for spec in chosen.values()):
        helpers.add(settings.alarm_detector)
    chosen |= {name: find(name) for name in helpers - chosen.keys()}
    return {name: str(method_code(spec)) for name, spec in sorted(chosen.items())}


def _trigger_runs(runs: Sequence[BaselineRun]) -> dict[str, int]:
    wanted = {run.trigger for run in runs if run.trigger}
    found: dict[str, int] = {}
    for number, run in enumerate(runs):
        if run.name in wanted:
            found.setdefault(run.name, number)
    return found


def _keys(batch: EpisodeBatch, run: BaselineRun, context: RunContext) -> list[Key]:
    """Keys of the rows that are expected of a run, as `ResultRow.key` gives them."""
    return [
        (
            run.name,
            run.settings,
            context.dataset,
            context.version,
            batch.truth.episode,
            run.task,
            expected.protocol,
            -1.0 if expected.delay_s is None else expected.delay_s,
            batch.fold,
            run.seed,
            run.code,
        )
        for expected in batch.expected(run, context)
    ]


def _fits(
    fold: Fold,
    batches: Sequence[EpisodeBatch],
    context: RunContext,
    source: DatasetSource,
    truths: Mapping[str, Truth],
    workers: int,
) -> list[FitBatch]:
    """Fit all baselines that will run, and the detectors whose alarms they are given."""
    needed: dict[int, None] = {}
    for batch in batches:
        for number in batch.runs:
            needed[number] = None
            if context.runs[number].task != "detection" and not batch.calibration:
                helpers = (batch.alarm_run, batch.trigger_runs.get(context.runs[number].trigger or ""))
                needed |= dict.fromkeys(helper for helper in helpers if helper is not None)
    return [
        FitBatch(
            fold=fold.number,
            healthy=tuple(source.location(episode) for episode in fold.train),
            faulty=tuple(source.location(episode) for episode in fold.faulty_train),
            labels=tuple(label_of(truths[episode]) for episode in (*fold.train, *fold.faulty_train)),
            runs=part,
        )
        for part in divide(sorted(needed), workers)
    ]


def divide(items: Sequence[int], pieces: int) -> list[tuple[int, ...]]:
    """Deal items out in turn into at most `pieces` groups, none of them empty."""
    return [tuple(items[i::pieces]) for i in range(min(pieces, len(items)))]
