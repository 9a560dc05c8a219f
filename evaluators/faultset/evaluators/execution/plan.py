"""Plan an evaluation: divide a dataset and a choice of baselines into batches of work."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from faultset.baselines.api.contract import TrainingFreeBaseline
from faultset.baselines.api.registry import BaselineSpec, get_baseline
from faultset.core.code_identity import UNINSTALLED
from faultset.core.errors import UsageError
from faultset.core.times import SECOND_NS
from faultset.datasets.format.episodes import EPISODES
from faultset.datasets.training.folds import Fold, cross_folds
from faultset.evaluators.execution.batches import BaselineRun, EpisodeBatch, RunContext
from faultset.evaluators.execution.dataset_source import EpisodeLocation
from faultset.evaluators.execution.file_cache import labels_folder
from faultset.evaluators.execution.fits import FitBatch, fits_folder, fits_limit
from faultset.evaluators.execution.runners.confinement import dataset_paths
from faultset.evaluators.execution.runners.messages import Blob, TrainingLabel
from faultset.evaluators.execution.runners.views import readable_tables
from faultset.evaluators.execution.settings import EvaluationScope, EvaluationSettings, TrainingData
from faultset.evaluators.results.provenance import (
    code_version,
    library_versions,
    method_code,
    method_paths,
    read_parameters,
    settings_hash,
)
from faultset.evaluators.results.rows import Key, ResultRow
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.diagnosis import best_constant

SEEDS_OF_STOCHASTIC = 5


def build_runs(
    chosen: Sequence[BaselineSpec], settings: EvaluationSettings
) -> tuple[tuple[BaselineRun, ...], list[int], dict[str, int]]:
    """Return all runs, and the indices of the scored ones and, by name, of the detectors that raise the alarms."""
    runs: list[BaselineRun] = []
    scored: list[int] = []
    for spec in chosen:
        scored += range(len(runs), len(runs) + (SEEDS_OF_STOCHASTIC if spec.stochastic else 1))
        runs += _build_runs_of(spec, settings)
    helpers = sorted({run.own_detector for run in runs if run.own_detector})
    needed = "detected" in settings.protocols and any(run.task != "detection" for run in runs)
    if needed:
        helpers = [*settings.alarm_detectors, *helpers]
    for name in helpers if needed else ():
        if all(run.name != name for run in runs):
            runs.append(_build_runs_of(get_baseline(name), settings)[0])
        if not next(run for run in runs if run.name == name).own_threshold:
            raise UsageError(
                f'the threshold of detector "{name}" is set only after all detectors have run, so its alarm cannot be '
                "passed to localizers; choose another detector"
            )
    alarms = settings.alarm_detectors if needed else ()
    return tuple(runs), scored, {name: next(n for n, run in enumerate(runs) if run.name == name) for name in alarms}


def _build_runs_of(spec: BaselineSpec, settings: EvaluationSettings) -> list[BaselineRun]:
    import cloudpickle

    payload = Blob.of(cloudpickle.dumps(spec))
    code = method_code(spec)
    code_paths = () if code.built_in else method_paths(spec)
    seeds = range(settings.seed, settings.seed + SEEDS_OF_STOCHASTIC) if spec.stochastic else [0]
    return [
        BaselineRun(
            name=spec.name,
            kind=spec.kind,
            task=spec.task,
            needs=inputs_beyond_telemetry(spec),
            seed=seed,
            spec=payload,
            settings=settings_hash({"baseline": spec.name, "parameters": read_parameters(spec), **settings.for_rows()}),
            code=str(code),
            built_in=code.built_in,
            tables=tuple(sorted(readable_tables(spec))),
            code_paths=code_paths,
            own_detector=spec.own_detector,
            learns=getattr(getattr(spec.factory, "func", spec.factory), "fit", None) is not TrainingFreeBaseline.fit,
            learns_from_references=spec.learns_from_references,
            own_threshold=spec.own_threshold,
            fit_code=""
            if code.distribution == UNINSTALLED
            else settings_hash({"baseline": spec.name, "code": str(code), "parameters": read_parameters(spec)}),
        )
        for seed in seeds
    ]


def inputs_beyond_telemetry(spec: BaselineSpec) -> tuple[str, ...]:
    """Return the inputs that rows list for a baseline: its needs, `references` and `threshold`."""
    more = [("references", spec.learns_from_references), ("threshold", not spec.own_threshold)]
    return tuple(sorted({*spec.needs, *(name for name, applies in more if applies)}))


def identify_codes(specs: Iterable[BaselineSpec], settings: EvaluationSettings) -> dict[str, str]:
    """Return the code identity of each baseline, including the detectors that raise the alarms."""
    chosen = {spec.name: spec for spec in specs}
    helpers = {spec.own_detector for spec in chosen.values() if spec.own_detector}
    if any(spec.task != "detection" for spec in chosen.values()):
        helpers |= {*settings.alarm_detectors}
    chosen |= {name: get_baseline(name) for name in helpers - chosen.keys()}
    return {name: str(method_code(spec)) for name, spec in sorted(chosen.items())}


def index_own_detectors(runs: Sequence[BaselineRun]) -> dict[str, int]:
    """Return the indices by name of the detectors that localizers were designed for."""
    own_detectors = {run.own_detector for run in runs if run.own_detector}
    numbers: dict[str, int] = {}
    for number, run in enumerate(runs):
        if run.name in own_detectors:
            numbers.setdefault(run.name, number)
    return numbers


MAX_INNER_FOLDS = 5
"""Each fold costs one fit of every detector that learns."""


def inner_folds(fold: Fold, truths: Mapping[str, Truth]) -> list[Fold]:
    """Divide the training episodes of a fold, so that each episode without a fault is tested once.

    Clusters stay together as in the outer folds. With fewer than two training episodes without a fault there are no
    inner folds.

    Parameters
    ----------
    truths
        Truth of every training episode, by its id.
    """
    training = [truths[episode] for episode in (*fold.healthy_train, *fold.faulty_train)]
    count = min(MAX_INNER_FOLDS, len(fold.healthy_train))
    if count < 2:
        return []
    healthy = set(fold.healthy_train)
    return [
        replace(inner, number=fold.number, inner=number, test=tuple(e for e in inner.test if e in healthy))
        for number, inner in enumerate(cross_folds(training, count))
        if inner.healthy_train and healthy.intersection(inner.test)
    ]


def list_training_labels(truth: Truth) -> tuple[TrainingLabel, ...]:
    """Return one label per fault of a training episode, for baselines that need labels."""
    causes = tuple(names[0] for names in truth.causes)
    if not truth.faults:
        first = next(iter(causes), None)
        return (TrainingLabel(first, truth.system_level, truth.fault_type, causes, truth.onset_ns),)
    labels = []
    for fault in truth.faults:
        first = next((names[0] for names in truth.causes if fault.target in names), None)
        ordered = tuple(sorted(causes, key=lambda name, first=first: name != first))
        labels.append(TrainingLabel(first, fault.system_level, fault.fault_type, ordered, truth.onset_ns))
    return tuple(labels)


def majority_labels(scope: EvaluationScope) -> dict[int, tuple[str, str]]:
    """Return the most frequent pair (system level, fault type) among the training labels of each fold."""
    labels = {number: find_majority_label(truths) for number, truths in _training_truths(scope).items()}
    return {number: label for number, label in labels.items() if label is not None}


def training_diagnoses(scope: EvaluationScope) -> dict[int, frozenset[tuple[str, str]]]:
    """Return all pairs (system level, fault type) among the training labels of each fold."""
    return {
        number: frozenset[tuple[str, str]]().union(*(truth.diagnoses for truth in truths))
        for number, truths in _training_truths(scope).items()
    }


def _training_truths(scope: EvaluationScope) -> dict[int, list[Truth]]:
    return {
        fold.number: [scope.truths[episode] for episode in (*fold.faulty_train, *fold.healthy_train)]
        for fold in scope.folds
    }


def find_majority_label(truths: Sequence[Truth]) -> tuple[str, str] | None:
    """Return the most frequent pair (system level, fault type); every fault of an episode counts."""
    labels = [label for truth in truths for label in list_training_labels(truth)]
    return best_constant(
        [(label.system_level, label.fault_type) for label in labels if label.system_level and label.fault_type]
    )


_PIECES_PER_WORKER = 3
_STEP_S = 0.02
"""CPU time per fit or answer, measured with the default methods: 0.020 s on the sample, 0.016 s on cuts of core-2."""
_ANSWER_BYTES, _TABLES_BYTES, _BASE_BYTES = 150, 50_000, 300_000
"""Bytes per answer, per method and application, and for the rest; measured on the sample and on 196 episodes."""
_SLOW_SHARE = 2.0 / 360
"""Minimum time per answer of a method declared slow, as a share of the view's length."""


@dataclass(frozen=True, kw_only=True)
class EvaluationPlan:
    """All batches of work of an evaluation."""

    scope: EvaluationScope
    specs: tuple[BaselineSpec, ...]
    context: RunContext
    fits: tuple[FitBatch, ...]
    batches: tuple[EpisodeBatch, ...]
    reused: tuple[ResultRow, ...] = ()
    """Rows taken from an interrupted evaluation."""

    @property
    def answers(self) -> int:
        """Number of rows that are still missing."""
        return sum(batch.count_answers(self.context) for batch in self.batches)

    @property
    def steps(self) -> int:
        """Number of steps for the progress display: fits and answers."""
        return self.answers + sum(len(fit.runs) for fit in self.fits)

    def expected_s(self, workers: int) -> float:
        """Estimate the seconds that all steps take with `workers` methods at a time."""
        slow = {spec.name for spec in self.specs if spec.speed == "slow"}
        longer = 0.0
        for batch in self.batches:
            view_s = (batch.truth.view_end_ns - batch.truth.view_start_ns) / SECOND_NS
            for run in (self.context.runs[number] for number in batch.runs):
                if run.name in slow:
                    longer += len(batch.expected(run, self.context)) * view_s * _SLOW_SHARE
        return (self.steps * _STEP_S + longer) / workers

    @property
    def expected_bytes(self) -> int:
        """Estimate the size of all files of results."""
        apps = len({truth.app for truth in self.scope.source.truths})
        return _BASE_BYTES + len(self.specs) * apps * _TABLES_BYTES + (self.answers + len(self.reused)) * _ANSWER_BYTES


def make_plan(
    scope: EvaluationScope,
    specs: Sequence[BaselineSpec],
    workers: int,
    *,
    reusable: Iterable[ResultRow] = (),
    hidden: Iterable[Path] = (),
) -> EvaluationPlan:
    """Divide an evaluation into batches of work.

    Parameters
    ----------
    reusable
        Rows of an interrupted evaluation, whose answers need not be computed again.
    hidden
        Files that methods must not read.
    """
    truths = scope.truths
    chosen = scope.choose_answerable(specs)
    runs, scored, alarms = build_runs(chosen, scope.settings)
    locations = {truth.episode: source.location(truth.episode) for source in scope.sources for truth in source.truths}
    context = _build_context(scope, runs, hidden)
    answered = {row.key: row for row in reusable}
    reused: dict[Key, ResultRow] = {}
    batches, fits = [], []
    pieces = max(1, math.ceil(_PIECES_PER_WORKER * workers / sum(len(fold.test) for fold in scope.folds)))
    for fold in scope.folds:
        inside = inner_folds(fold, truths)
        fold_batches = []
        for batch in (
            *_plan_tests(fold, scored, locations, scope, alarms, index_own_detectors(runs)),
            *_plan_calibration(fold, inside, scored, context, locations, truths),
        ):
            keys = {number: _list_keys(batch, runs[number], context) for number in batch.runs}
            done = {number for number in keys if all(key in answered for key in keys[number])}
            reused |= {key: answered[key] for number in done for key in keys[number]}
            missing = [number for number in keys if keys[number] and number not in done]
            fold_batches += [replace(batch, runs=group) for group in divide(missing, pieces)]
        batches += fold_batches
        for fitted_fold in (fold, *inside):
            dependent = [batch for batch in fold_batches if batch.inner == fitted_fold.inner]
            fits += _plan_fits(fitted_fold, dependent, context, locations, truths, workers)
    return EvaluationPlan(
        scope=scope,
        specs=tuple(chosen),
        context=context,
        fits=tuple(fits),
        batches=tuple(batches),
        reused=tuple(reused.values()),
    )


def _build_context(scope: EvaluationScope, runs: tuple[BaselineRun, ...], hidden: Iterable[Path]) -> RunContext:
    return RunContext(
        dataset=scope.source.name,
        version=scope.source.version,
        split=scope.split,
        code=code_version(),
        libraries=library_versions(),
        settings=scope.settings,
        runs=runs,
        fits_bytes=fits_limit(),
        hidden=(*(str(path) for path in (*hidden, fits_folder(), labels_folder())), *_list_paths(scope.training)),
        online_alarms=scope.online_alarms,
        majority_labels=majority_labels(scope),
        training_diagnoses=training_diagnoses(scope),
    )


def _plan_tests(
    fold: Fold,
    scored: Sequence[int],
    locations: Mapping[str, EpisodeLocation],
    scope: EvaluationScope,
    alarms: Mapping[str, int],
    own_detectors: Mapping[str, int],
) -> Iterator[EpisodeBatch]:
    """Yield the batches that run all scored baselines on the test episodes of a fold."""
    for episode in fold.test:
        yield EpisodeBatch(
            fold=fold.number,
            location=locations[episode],
            truth=scope.truths[episode],
            runs=tuple(scored),
            alarm_run=alarms.get(scope.choose_alarm_detector(episode)),
            own_detector_runs=own_detectors,
        )


def _plan_calibration(
    fold: Fold,
    inside: Sequence[Fold],
    scored: Sequence[int],
    context: RunContext,
    locations: Mapping[str, EpisodeLocation],
    truths: Mapping[str, Truth],
) -> Iterator[EpisodeBatch]:
    """Yield the batches that run detectors on healthy training episodes, with models not fitted on these episodes."""
    runs, every = context.runs, context.settings.calibrate
    detectors = [n for n in scored if runs[n].task == "detection" and (every or not runs[n].own_threshold)]
    unfitted = tuple(n for n in detectors if not runs[n].learns)
    learned = tuple(n for n in detectors if runs[n].learns)
    for inner, episodes, numbers in (
        (None, fold.healthy_train, unfitted),
        *((inner.inner, inner.test, learned) for inner in inside),
    ):
        for episode in episodes if numbers else ():
            yield EpisodeBatch(
                fold=fold.number,
                location=locations[episode],
                truth=truths[episode],
                runs=numbers,
                calibration=True,
                inner=inner,
            )


def _list_paths(training: TrainingData | None) -> list[str]:
    """Return the paths of a training dataset, to hide them from methods."""
    if training is None or training.source.url is not None:
        return []
    return dataset_paths(training.source.folder / EPISODES / "any")


def _list_keys(batch: EpisodeBatch, run: BaselineRun, context: RunContext) -> list[Key]:
    """Return the keys of the rows that a run must produce; see `ResultRow.key`."""
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


def _plan_fits(
    fold: Fold,
    batches: Sequence[EpisodeBatch],
    context: RunContext,
    locations: Mapping[str, EpisodeLocation],
    truths: Mapping[str, Truth],
    workers: int,
) -> list[FitBatch]:
    """Return the fits of all baselines that will run, and of the detectors that raise their alarms."""
    needed: dict[int, None] = {}
    for batch in batches:
        for number in batch.runs:
            needed[number] = None
            if context.runs[number].task != "detection" and not batch.calibration:
                helpers = (batch.alarm_run, batch.own_detector_runs.get(context.runs[number].own_detector or ""))
                needed |= dict.fromkeys(helper for helper in helpers if helper is not None)
    # an episode with several faults is a training example once per fault
    labelled = [
        (locations[episode], label) for episode in fold.faulty_train for label in list_training_labels(truths[episode])
    ]
    return [
        FitBatch(
            fold=fold.number,
            healthy=tuple(locations[episode] for episode in fold.healthy_train),
            faulty=tuple(location for location, _ in labelled),
            labels=(
                *(label for episode in fold.healthy_train for label in list_training_labels(truths[episode])),
                *(label for _, label in labelled),
            ),
            runs=group,
            inner=fold.inner,
        )
        for group in divide(sorted(needed), workers)
    ]


def divide(items: Sequence[int], pieces: int) -> list[tuple[int, ...]]:
    """Deal items round-robin into at most `pieces` non-empty groups."""
    return [tuple(items[i::pieces]) for i in range(min(pieces, len(items)))]
