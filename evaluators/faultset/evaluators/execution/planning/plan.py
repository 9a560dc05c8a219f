"""The plan of an evaluation: from a dataset and a choice of baselines to batches of work."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from faultset.core.times import SECOND_NS
from faultset.datasets.format.episodes import EPISODES
from faultset.datasets.training.folds import Fold
from faultset.evaluators.execution.baseline_runs import BaselineRun, RunContext
from faultset.evaluators.execution.batches import EpisodeBatch
from faultset.evaluators.execution.fit_cache import fits_folder, fits_limit
from faultset.evaluators.execution.fits import FitBatch
from faultset.evaluators.execution.label_cache import labels_folder
from faultset.evaluators.execution.planning.calibration import inner_folds
from faultset.evaluators.execution.planning.runs import all_runs, trigger_runs
from faultset.evaluators.execution.planning.training_labels import labels_of, majority_labels
from faultset.evaluators.execution.remote_episodes import EpisodeLocation
from faultset.evaluators.execution.runners.confinement import dataset_places
from faultset.evaluators.execution.settings import EvaluationScope, TrainingData
from faultset.evaluators.results.provenance import code_version, library_versions
from faultset.evaluators.results.rows import Key, ResultRow
from faultset.evaluators.results.truth import Truth

if TYPE_CHECKING:
    from faultset.baselines.api.registry import BaselineSpec

_PIECES_PER_WORKER = 3
_STEP_S = 0.05
"""Time of one worker for a fit or an answer: 0.06 s on the sample, 0.05 s on core-1, with the default methods."""
_SLOW_SHARE = 2.0 / 360
"""Of the length of a view, what a method that is declared slow takes at least for an answer."""


@dataclass(frozen=True, kw_only=True)
class EvaluationPlan:
    """All batches of work of an evaluation."""

    scope: EvaluationScope
    specs: tuple[BaselineSpec, ...]
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

    def expected_s(self, workers: int) -> float:
        """Return about how many seconds all steps take, with so many methods at a time."""
        slow = {spec.name for spec in self.specs if spec.speed == "slow"}
        longer = 0.0
        for batch in self.batches:
            view_s = (batch.truth.view_end_ns - batch.truth.view_start_ns) / SECOND_NS
            for run in (self.context.runs[number] for number in batch.runs):
                if run.name in slow:
                    longer += len(batch.expected(run, self.context)) * view_s * _SLOW_SHARE
        return (self.steps * _STEP_S + longer) / workers


def make_plan(
    scope: EvaluationScope,
    specs: Sequence[BaselineSpec],
    workers: int,
    *,
    kept: Iterable[ResultRow] = (),
    hidden: Iterable[Path] = (),
) -> EvaluationPlan:
    """Divide an evaluation into batches of work.

    Parameters
    ----------
    kept
        Rows of an interrupted evaluation; the answers that they hold are left out.
    hidden
        Files that methods cannot read.
    """
    settings, truths = scope.settings, scope.truths
    chosen = scope.choose_answerable(specs)
    runs, scored, alarms = all_runs(chosen, settings)
    alarm_runs = {truth.episode: alarms.get(scope.alarm_of(truth.episode)) for truth in scope.source.truths}
    places = {truth.episode: source.location(truth.episode) for source in scope.sources for truth in source.truths}
    context = RunContext(
        dataset=scope.source.name,
        version=scope.source.version,
        split=scope.split,
        code=code_version(),
        libraries=library_versions(),
        settings=settings,
        runs=runs,
        fits_bytes=fits_limit(),
        hidden=(*(str(path) for path in (*hidden, fits_folder(), labels_folder())), *_places_of(scope.training)),
        majority_labels=majority_labels(scope),
    )
    answered = {row.key: row for row in kept}
    used: dict[Key, ResultRow] = {}
    batches, fits = [], []
    tested = sum(len(fold.test) for fold in scope.folds)
    pieces = max(1, math.ceil(_PIECES_PER_WORKER * workers / tested))
    for fold in scope.folds:
        inside = inner_folds(fold, truths)
        of_fold = []
        for batch in (
            *_tested(fold, scored, places, truths, alarm_runs, trigger_runs(runs)),
            *_calibrated(fold, inside, scored, context, places, truths),
        ):
            missing = []
            for number in batch.runs:
                keys = _keys(batch, runs[number], context)
                if keys and all(key in answered for key in keys):
                    used |= {key: answered[key] for key in keys}
                elif keys:
                    missing.append(number)
            of_fold += [replace(batch, runs=part) for part in divide(missing, pieces)]
        batches += of_fold
        for part in (fold, *inside):
            mine = [batch for batch in of_fold if batch.inner == part.inner]
            fits += _fits(part, mine, context, places, truths, workers)
    return EvaluationPlan(
        scope=scope,
        specs=tuple(chosen),
        context=context,
        fits=tuple(fits),
        batches=tuple(batches),
        kept=tuple(used.values()),
    )


def _tested(
    fold: Fold,
    scored: Sequence[int],
    places: Mapping[str, EpisodeLocation],
    truths: Mapping[str, Truth],
    alarms: Mapping[str, int | None],
    triggers: Mapping[str, int],
) -> Iterator[EpisodeBatch]:
    """All scored baselines on the test episodes of a fold."""
    for episode in fold.test:
        yield EpisodeBatch(
            fold=fold.number,
            location=places[episode],
            truth=truths[episode],
            runs=tuple(scored),
            alarm_run=alarms[episode],
            trigger_runs=triggers,
        )


def _calibrated(
    fold: Fold,
    inside: Sequence[Fold],
    scored: Sequence[int],
    context: RunContext,
    places: Mapping[str, EpisodeLocation],
    truths: Mapping[str, Truth],
) -> Iterator[EpisodeBatch]:
    """Detectors on the training episodes without a fault; what learns is asked by models that did not see them."""
    runs, every = context.runs, context.settings.calibrate
    detectors = [n for n in scored if runs[n].task == "detection" and (every or not runs[n].own_threshold)]
    unfitted = tuple(n for n in detectors if not runs[n].learns)
    learned = tuple(n for n in detectors if runs[n].learns)
    for inner, episodes, numbers in (
        (None, fold.healthy_train, unfitted),
        *((part.inner, part.test, learned) for part in inside),
    ):
        for episode in episodes if numbers else ():
            yield EpisodeBatch(
                fold=fold.number,
                location=places[episode],
                truth=truths[episode],
                runs=numbers,
                calibration=True,
                inner=inner,
            )


def _places_of(training: TrainingData | None) -> list[str]:
    """Return the files and folders of a training dataset, of which methods may only read what they are given."""
    if training is None or training.source.url is not None:
        return []
    return dataset_places(training.source.folder / EPISODES / "any")


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
            expected.amount,
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
    places: Mapping[str, EpisodeLocation],
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
    # an episode with several faults is learned from once for each of them
    labelled = [(places[episode], label) for episode in fold.faulty_train for label in labels_of(truths[episode])]
    return [
        FitBatch(
            fold=fold.number,
            healthy=tuple(places[episode] for episode in fold.healthy_train),
            faulty=tuple(place for place, _ in labelled),
            labels=(
                *(label for episode in fold.healthy_train for label in labels_of(truths[episode])),
                *(label for _, label in labelled),
            ),
            runs=part,
            inner=fold.inner,
        )
        for part in divide(sorted(needed), workers)
    ]


def divide(items: Sequence[int], pieces: int) -> list[tuple[int, ...]]:
    """Deal items out in turn into at most `pieces` groups, none of them empty."""
    return [tuple(items[i::pieces]) for i in range(min(pieces, len(items)))]
