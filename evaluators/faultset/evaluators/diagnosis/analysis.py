"""Diagnose one incident: alarms, ranked suspects with evidence, and the hit rate on labelled incidents."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from faultset.baselines.contract import Evidence
from faultset.baselines.registry import BaselineSpec, get_baseline
from faultset.core.errors import UsageError
from faultset.datasets.dataset import Episode
from faultset.datasets.views import EpisodeView
from faultset.evaluators.diagnosis.observations import observe_changes
from faultset.evaluators.diagnosis.records import (
    GIVEN,
    WITHOUT_ALARM,
    DetectorAlarm,
    IncidentAnalysis,
    Observation,
    PanelAnswer,
    Suspect,
    read_calibration,
)
from faultset.evaluators.diagnosis.text import check_moment
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
    """Return the named localizers, or the default panel if none is named."""
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
        self._worker = BaselineWorker(reraised=(KeyboardInterrupt,))
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


MAX_SUSPECTS = 3


def diagnose(
    episode: Episode | Path | str, *, at_ns: int | None = None, methods: Iterable[str] = ()
) -> IncidentAnalysis:
    """Find suspects for an incident, with evidence; the truth is never read.

    Parameters
    ----------
    episode
        An episode or its folder. It needs no label.
    at_ns
        When the problem was noticed, UTC nanoseconds. By default detectors decide; without an alarm, everything after
        the healthy reference counts.
    methods
        Localizers to run instead of the default panel.

    Returns
    -------
    IncidentAnalysis
        It has no suspects if the evidence is no stronger than in almost all episodes without a fault.

    Raises
    ------
    UsageError
        A method does not exist or needs training data, or the time is outside the telemetry.
    DataError
        The episode is damaged.

    Examples
    --------
    >>> from faultset.datasets import open_dataset
    >>> analysis = diagnose(open_dataset("datasets/sample")["a5edb68659bc"])  # doctest: +SKIP
    >>> analysis.suspects[0].service  # doctest: +SKIP
    'geo'
    """
    specs = choose_panel(methods)
    folder = episode.path if isinstance(episode, Episode) else Path(episode)
    view = EpisodeView(folder)
    reported_ns = None if at_ns is None else check_moment(at_ns, view.context)
    calibration = read_calibration() if tuple(spec.name for spec in specs) == PANEL else None
    with Panel(folder) as panel:
        alarms = tuple(panel.alarm(name) for name in DETECTORS)
        moment_ns, moment_from = _choose_moment(view, alarms, reported_ns)
        answers = tuple(panel.answer(spec, moment_ns) for spec in specs)
        control = panel.answer(get_baseline(CONTROL), moment_ns)
        ranked = rank_suspects(answers)[:MAX_SUSPECTS]
        strength = measure_strength(answers)
        if calibration is not None and strength <= calibration.limit:
            ranked = []
        observations = observe_changes(panel.view(view.context.tables), moment_ns, [name for name, _ in ranked])
    suspects = _build_suspects(ranked, answers, observations)
    agreeing = len(suspects[0].named_first_by) if suspects else 0
    return IncidentAnalysis(
        episode=view.episode,
        app=view.context.app,
        window_ns=view.window,
        reference_ns=view.reference,
        moment_ns=moment_ns,
        moment_from=moment_from,
        alarms=alarms,
        answers=answers,
        control=control,
        strength=strength,
        limit=0.0 if calibration is None else calibration.limit,
        suspects=suspects,
        hit_rate=calibration.hit_rate(agreeing, oracle=reported_ns is not None) if calibration and suspects else None,
    )


def rank_suspects(answers: Sequence[PanelAnswer]) -> list[tuple[str, float]]:
    """Return services with their mean of 1/rank; the first suspect of the leading method comes first.

    The leading method is the method of `answers[0]`. Methods without an answer do not count; a service that a method
    does not name gets 0 from it.
    """
    answered = [answer for answer in answers if answer.status == "ok"]
    scores: dict[str, float] = {}
    for answer in answered:
        for rank, service in enumerate(answer.scores, start=1):
            scores[service] = scores.get(service, 0.0) + 1 / rank / len(answered)
    first = answers[0].first
    return sorted(scores.items(), key=lambda item: (item[0] != first, -round(item[1], 9), item[0]))


def measure_strength(answers: Sequence[PanelAnswer]) -> float:
    """Return the leading method's score of its first suspect, in powers of ten; 0 if it has none."""
    leading = answers[0]
    return round(max(leading.scores.values(), default=0.0), 2)


def _choose_moment(view: EpisodeView, alarms: Sequence[DetectorAlarm], reported_ns: int | None) -> tuple[int, str]:
    """Return the time of the incident, and where it comes from."""
    if reported_ns is not None:
        return reported_ns, GIVEN
    for alarm in alarms:
        if alarm.time_ns is not None:
            return alarm.time_ns, alarm.detector
    return view.reference[1], WITHOUT_ALARM


def _build_suspects(
    ranked: Sequence[tuple[str, float]],
    answers: Sequence[PanelAnswer],
    observations: dict[str, tuple[Observation, ...]],
) -> tuple[Suspect, ...]:
    return tuple(
        Suspect(
            service=service,
            score=round(score, 3),
            named_first_by=tuple(answer.method for answer in answers if answer.first == service),
            observations=observations[service],
        )
        for service, score in ranked
    )
