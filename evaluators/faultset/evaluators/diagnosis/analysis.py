"""Diagnose one incident: alarms, ranked suspects with evidence, and the hit rate on labelled incidents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from faultset.baselines.api.registry import get_baseline
from faultset.datasets.dataset import Episode
from faultset.datasets.views import EpisodeView
from faultset.evaluators.diagnosis.calibration import read_calibration
from faultset.evaluators.diagnosis.observations import observe_changes
from faultset.evaluators.diagnosis.panel import CONTROL, DETECTORS, PANEL, Panel, choose_panel
from faultset.evaluators.diagnosis.records import (
    GIVEN,
    WITHOUT_ALARM,
    DetectorAlarm,
    IncidentAnalysis,
    Observation,
    PanelAnswer,
    Suspect,
)
from faultset.evaluators.diagnosis.times import check_moment

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
        Localizers to ask instead of the default panel.

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
    """Return services with their mean of 1/rank; the first suspect of the leading method is first.

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
