"""Baselines with their seeds, and the detectors that raise the alarm for others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from faultset.core.code_identity import UNINSTALLED
from faultset.core.errors import UsageError
from faultset.evaluators.execution.baseline_runs import BaselineRun
from faultset.evaluators.execution.planning.settings import EvaluationSettings
from faultset.evaluators.execution.runners.messages import Blob
from faultset.evaluators.execution.runners.views import readable_tables
from faultset.evaluators.results.provenance import (
    method_code,
    method_places,
    parameters_of,
    settings_hash,
)

if TYPE_CHECKING:
    from faultset.baselines.api.registry import BaselineSpec

SEEDS_OF_STOCHASTIC = 5
Find = Callable[[str], "BaselineSpec"]


def all_runs(
    chosen: Sequence[BaselineSpec], settings: EvaluationSettings, find: Find
) -> tuple[tuple[BaselineRun, ...], list[int], dict[str, int]]:
    """Return all runs, which of them are scored, and which raise alarms for the others, by name."""
    runs: list[BaselineRun] = []
    scored: list[int] = []
    for spec in chosen:
        scored += range(len(runs), len(runs) + (SEEDS_OF_STOCHASTIC if spec.stochastic else 1))
        runs += _runs_of(spec, settings)
    helpers = sorted({run.trigger for run in runs if run.trigger})
    needed = "detected" in settings.protocols and any(run.task != "detection" for run in runs)
    if needed:
        helpers = [*settings.alarm_detectors, *helpers]
    for name in helpers if needed else ():
        if all(run.name != name for run in runs):
            runs.append(_runs_of(find(name), settings)[0])
        if not next(run for run in runs if run.name == name).own_threshold:
            raise UsageError(
                f'the detector "{name}" gets its threshold when all detectors have run, so localizers cannot be given '
                "its alarm; name another detector"
            )
    alarms = settings.alarm_detectors if needed else ()
    return tuple(runs), scored, {name: next(n for n, run in enumerate(runs) if run.name == name) for name in alarms}


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
            needs=given_beyond_telemetry(spec),
            seed=seed,
            spec=payload,
            settings=settings_hash({"baseline": spec.name, "parameters": parameters_of(spec), **settings.for_rows()}),
            code=str(code),
            built_in=code.built_in,
            tables=tuple(sorted(readable_tables(spec))),
            places=places,
            trigger=spec.trigger,
            learns=getattr(spec.factory, "fit", None) is not Untrained.fit,
            learns_from_references=spec.learns_from_references,
            own_threshold=spec.own_threshold,
            fit_code=""
            if code.distribution == UNINSTALLED
            else settings_hash({"baseline": spec.name, "code": str(code), "parameters": parameters_of(spec)}),
        )
        for seed in seeds
    ]


def given_beyond_telemetry(spec: BaselineSpec) -> tuple[str, ...]:
    """Return what rows say that a baseline was given: its needs, `references` to learn from, its `threshold`."""
    more = [("references", spec.learns_from_references), ("threshold", not spec.own_threshold)]
    return tuple(sorted({*spec.needs, *(name for name, given in more if given)}))


def codes_of(specs: Iterable[BaselineSpec], settings: EvaluationSettings, find: Find) -> dict[str, str]:
    """Return baseline -> identity of its code, for baselines and for the detectors whose alarms they are given."""
    chosen = {spec.name: spec for spec in specs}
    helpers = {spec.trigger for spec in chosen.values() if spec.trigger}
    if any(spec.task != "detection" for spec in chosen.values()):
        helpers |= {*settings.alarm_detectors}
    chosen |= {name: find(name) for name in helpers - chosen.keys()}
    return {name: str(method_code(spec)) for name, spec in sorted(chosen.items())}


def trigger_runs(runs: Sequence[BaselineRun]) -> dict[str, int]:
    wanted = {run.trigger for run in runs if run.trigger}
    found: dict[str, int] = {}
    for number, run in enumerate(runs):
        if run.name in wanted:
            found.setdefault(run.name, number)
    return found
