"""Choose baselines, and divide an evaluation into batches of work."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from faultset.baselines.contract import TrainingFreeBaseline
from faultset.baselines.registry import BaselineSpec, function_baseline, get_baseline, list_baselines
from faultset.core.code_identity import UNINSTALLED
from faultset.core.errors import UsageError, is_installed, needs_extra
from faultset.core.times import SECOND_NS
from faultset.datasets.format.episodes import EPISODES
from faultset.datasets.training.folds import Fold
from faultset.evaluators.execution.batches import BaselineRun, EpisodeBatch, RunContext
from faultset.evaluators.execution.dataset_source import EpisodeLocation
from faultset.evaluators.execution.file_cache import labels_folder
from faultset.evaluators.execution.fits import FitBatch, fits_folder, fits_limit
from faultset.evaluators.execution.runners.baseline_worker import dataset_paths
from faultset.evaluators.execution.runners.messages import Blob
from faultset.evaluators.execution.runners.views import readable_tables
from faultset.evaluators.execution.settings import (
    EvaluationScope,
    EvaluationSettings,
    TrainingData,
    inner_folds,
    list_training_labels,
    majority_labels,
    training_diagnoses,
)
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

GROUPS = ("default", "all", "named", "methods", "rules", "controls", "variants")
"""Group names accepted in place of method names; "variants" are reconstructed methods with other settings."""

STRONGEST = frozenset({
    "baro-change-point", "trace-errors", "deeplog-markov", "nearest-window", "isolation-forest",
    "combined-evidence", "boosted-ranker", "epsilon-diagnosis", "kubernetes-state", "pdiagnose",
    "nearest-signature", "rca-tree", "rca-forest",
})  # fmt: skip
"""The best methods of each task on core-2 that need no extra, no client requests and no location of the alarm."""
_KINDS_BY_GROUP = {"named": ("named",), "methods": ("method", "own"), "rules": ("rule",), "controls": ("control",)}


def choose_baselines(
    methods: Iterable[str | BaselineSpec | type | Callable[..., Any]] | Mapping[str, Callable[..., Any]] = (),
) -> list[BaselineSpec]:
    """Look up methods by name or group; accept specs, registered classes and functions as they are.

    An empty argument means the group "default": the methods of the AIOpsLab paper (kind `named`), the controls,
    `STRONGEST`, and methods from other distributions. Groups leave out methods whose extra is not installed.
    """
    if isinstance(methods, Mapping):
        methods = [function_baseline(function, str(name)) for name, function in methods.items()]
    chosen: dict[str, BaselineSpec] = {}
    items = list(methods) or ["default"]
    for item in items:
        if item == "variants":
            chosen |= {spec.name: spec for method in list_baselines().values() for spec in build_variants(method)}
            chosen = {name: spec for name, spec in chosen.items() if not lacks_extra(spec)}
        elif isinstance(item, str) and item in GROUPS:
            chosen |= {spec.name: spec for spec in list_baselines().values() if _belongs(spec, item)}
            chosen = {name: spec for name, spec in chosen.items() if not lacks_extra(spec)}
        else:
            spec = get_baseline(item) if isinstance(item, str) else _get_spec(item)
            if lacks_extra(spec):
                raise needs_extra(f'"{spec.name}"', spec.extra)
            chosen[spec.name] = spec
    if any(isinstance(item, str) and item in GROUPS for item in items):
        return [chosen[name] for name in sorted(chosen)]
    return list(chosen.values())


def build_variants(spec: BaselineSpec) -> list[BaselineSpec]:
    """Return one method `NAME[SETTING]` per declared alternative to settings that the method's paper leaves open."""
    variants: Mapping[str, Mapping[str, Any]] = getattr(spec, "variants", {})
    return [
        replace(spec, name=f"{spec.name}[{label}]", factory=functools.partial(spec.factory, **parameters))
        for label, parameters in variants.items()
    ]


def _get_spec(method: Any) -> BaselineSpec:
    spec = getattr(method, "spec", method)
    if isinstance(method, type) and not isinstance(spec, BaselineSpec):
        raise UsageError(
            f"{method!r} is not a baseline; pass a name, a function, or a class with the decorator baseline"
        )
    return spec if isinstance(spec, BaselineSpec) else function_baseline(method)


def lacks_extra(spec: BaselineSpec) -> bool:
    return bool(spec.extra) and not is_installed(spec.extra)


def count_left_out(chosen: Iterable[str]) -> int:
    """Return the number of baselines that were not chosen."""
    return len(list_baselines().keys() - set(chosen))


def _belongs(spec: BaselineSpec, group: str) -> bool:
    if group == "default":
        built_in = spec.factory.__module__.startswith("faultset.")
        return not spec.extra and (spec.kind in ("named", "control") or spec.name in STRONGEST or not built_in)
    # a pre-trained model needs weights that the user has to fetch
    return spec.extra != "forecasters" and (group == "all" or spec.kind in _KINDS_BY_GROUP[group])


SEEDS_OF_STOCHASTIC = 5


def build_runs(
    chosen: Sequence[BaselineSpec], settings: EvaluationSettings
) -> tuple[tuple[BaselineRun, ...], list[int], dict[str, int]]:
    """Return all runs, the indices of the scored ones, and the indices of the alarm detectors by name."""
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
    extras = [("references", spec.learns_from_references), ("threshold", not spec.own_threshold)]
    return tuple(sorted({*spec.needs, *(name for name, applies in extras if applies)}))


def identify_codes(specs: Iterable[BaselineSpec], settings: EvaluationSettings) -> dict[str, str]:
    """Return the identity of each baseline's code, including the detectors that raise their alarms."""
    chosen = {spec.name: spec for spec in specs}
    helpers = {spec.own_detector for spec in chosen.values() if spec.own_detector}
    if any(spec.task != "detection" for spec in chosen.values()):
        helpers |= {*settings.alarm_detectors}
    chosen |= {name: get_baseline(name) for name in helpers - chosen.keys()}
    return {name: str(method_code(spec)) for name, spec in sorted(chosen.items())}


def index_own_detectors(runs: Sequence[BaselineRun]) -> dict[str, int]:
    """Return the indices of the detectors that localizers were designed for, by name."""
    own_detectors = {run.own_detector for run in runs if run.own_detector}
    numbers: dict[str, int] = {}
    for number, run in enumerate(runs):
        if run.name in own_detectors:
            numbers.setdefault(run.name, number)
    return numbers


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
        slow_s = 0.0
        for batch in self.batches:
            view_s = (batch.truth.view_end_ns - batch.truth.view_start_ns) / SECOND_NS
            for run in (self.context.runs[number] for number in batch.runs):
                if run.name in slow:
                    slow_s += len(batch.expected(run, self.context)) * view_s * _SLOW_SHARE
        return (self.steps * _STEP_S + slow_s) / workers

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

    `reusable`: rows of an interrupted evaluation, whose answers need not be computed again.
    `hidden`: files that methods must not read.
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
        subfolds = inner_folds(fold, truths)
        fold_batches = []
        for batch in (
            *_plan_tests(fold, scored, locations, scope, alarms, index_own_detectors(runs)),
            *_plan_calibration(fold, subfolds, scored, context, locations, truths),
        ):
            keys = {number: _list_keys(batch, runs[number], context) for number in batch.runs}
            done = {number for number in keys if all(key in answered for key in keys[number])}
            reused |= {key: answered[key] for number in done for key in keys[number]}
            missing = [number for number in keys if keys[number] and number not in done]
            fold_batches += [replace(batch, runs=group) for group in divide(missing, pieces)]
        batches += fold_batches
        for fitted_fold in (fold, *subfolds):
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
    subfolds: Sequence[Fold],
    scored: Sequence[int],
    context: RunContext,
    locations: Mapping[str, EpisodeLocation],
    truths: Mapping[str, Truth],
) -> Iterator[EpisodeBatch]:
    """Yield the batches that run detectors on healthy training episodes, with models not fitted on these episodes."""
    runs, calibrates_all = context.runs, context.settings.calibrate
    detectors = [n for n in scored if runs[n].task == "detection" and (calibrates_all or not runs[n].own_threshold)]
    unfitted = tuple(n for n in detectors if not runs[n].learns)
    learned = tuple(n for n in detectors if runs[n].learns)
    for inner, episodes, numbers in (
        (None, fold.healthy_train, unfitted),
        *((inner.inner, inner.test, learned) for inner in subfolds),
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
