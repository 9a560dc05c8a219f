"""Run detectors and localizers on one episode.

Built-in methods run in this process, because a fork server takes longer to start than they take to answer. Other
methods run as in an evaluation: in a separate, confined process with limits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, Self

from faultset.baselines.api.contract import Evidence
from faultset.baselines.api.registry import BaselineSpec, get_baseline
from faultset.core.errors import UsageError
from faultset.evaluators.diagnosis.records import DetectorAlarm, PanelAnswer
from faultset.evaluators.execution.runners.baseline_worker import BaselineWorker
from faultset.evaluators.execution.runners.messages import (
    Action,
    AnswerRequest,
    Blob,
    FitRequest,
    MethodProcess,
    RunLimits,
    RunnerOutcome,
)
from faultset.evaluators.execution.runners.process_trees import PeakMemory
from faultset.evaluators.execution.runners.runner_process import RunnerProcess, machine_pool, next_number
from faultset.evaluators.execution.runners.views import SharedView, readable_tables
from faultset.evaluators.results.provenance import method_code, method_paths

DETECTORS = ("trace-errors", "baro-change-point", "log-rate")
"""Detectors on spans, metrics and log lines. The first with an alarm sets the time of the incident."""
PANEL = ("combined-evidence", "nezha-patterns", "nsigma", "tracerca", "event-log")
"""The localizers with the best mean rank over ten systems (docs/results/comparisons.md), and one that reads logs."""
CONTROL = "loudest-log"
"""The control with the most correct answers on the labelled incidents from which `calibration.json` is computed."""


def choose_panel(methods: Iterable[str]) -> tuple[BaselineSpec, ...]:
    """Return the named localizers, or the default panel if none is named.

    Raises
    ------
    UsageError
        A method does not exist, is not a localizer, or learns from labelled episodes.
    """
    specs = tuple(get_baseline(name) for name in dict.fromkeys(methods) or PANEL)
    for spec in specs:
        if spec.task != "localization":
            raise UsageError(
                f'"{spec.name}" performs {spec.task}, but suspects come from localizers; choose from '
                '"faultset list baselines --task localization"'
            )
        if "labels" in spec.needs or spec.learns_from_references:
            raise UsageError(
                f'"{spec.name}" learns from labelled episodes, and an incident has none; choose another localizer'
            )
    return specs


class Panel:
    """Methods for one episode, with shared tables and frames; use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder.resolve())
        self._worker = BaselineWorker(_peak_memory(), reraised=(KeyboardInterrupt,))
        self._resources = ExitStack()
        self._runner: RunnerProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def view(self, tables: Iterable[str]) -> SharedView:
        """Return a view of the episode that shares tables and frames with the methods."""
        return SharedView(self._folder, self._worker.cache, tables=frozenset(tables))

    def alarm(self, name: str) -> DetectorAlarm:
        """Return the alarm of a detector, which is fitted without training episodes."""
        outcome = self._run_method(get_baseline(name), "detect", 0)
        time_ns = None if outcome.answer is None else outcome.answer.alarm_ns
        return DetectorAlarm(detector=name, time_ns=time_ns, status=outcome.status, reason=outcome.reason)

    def answer(self, spec: BaselineSpec, moment_ns: int) -> PanelAnswer:
        """Return the answer of a localizer, which is fitted without training episodes."""
        outcome = self._run_method(spec, "localize", moment_ns)
        scores: dict[str, float] = {}
        evidence: list[dict[str, Any]] = []
        if outcome.answer is not None:
            scores = {name: score for name, score in outcome.answer.ranking.items() if score > 0}
            evidence = json.loads(outcome.answer.text).get("evidence", [])
        return PanelAnswer(
            method=spec.name,
            kind=spec.kind,
            scores=scores,
            evidence=tuple(Evidence(**item) for item in evidence),
            status=outcome.status,
            reason=outcome.reason,
            seconds=round(outcome.seconds, 3),
        )

    def _run_method(self, spec: BaselineSpec, action: Action, moment_ns: int) -> RunnerOutcome:
        """Build the method, fit it without training episodes, and run it."""
        import cloudpickle

        code = method_code(spec)
        process = MethodProcess(
            key=spec.name,
            built_in=code.built_in,
            episodes=(self._folder,),
            tables=None if code.built_in else tuple(sorted(readable_tables(spec))),
            code=() if code.built_in else method_paths(spec),
        )
        blob = Blob.of(cloudpickle.dumps(spec))
        fit = FitRequest(number=next_number(), process=process, spec=blob, seed=0, episodes=())
        fitted = self._run(fit)
        if fitted.status != "ok":
            return fitted
        request = AnswerRequest(
            number=next_number(),
            process=process,
            action=action,
            spec=blob,
            model=Blob.of(fitted.model),
            seed=0,
            episode=self._folder,
            alarm_ns=moment_ns,
        )
        return self._run(request)

    def _run(self, request: FitRequest | AnswerRequest) -> RunnerOutcome:
        if request.process.built_in:
            return self._worker.reply_to(request)
        if self._runner is None:
            self._runner = self._resources.enter_context(machine_pool().lend(self._folder))
        return self._runner.run(request, RunLimits())


@cache
def _peak_memory() -> PeakMemory:
    """Return the memory meter of this process; cached, because it holds a file open."""
    return PeakMemory()
