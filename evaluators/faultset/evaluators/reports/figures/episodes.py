"""One episode drawn: what clients and services showed, its phases, and what each method answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from faultset.evaluators.leaderboards.records import Leaderboard, is_headline
from faultset.evaluators.leaderboards.scores import EpisodeScores, Setting
from faultset.evaluators.reports.episode_difficulty import EpisodeDifficulty, episode_title
from faultset.evaluators.reports.figures.answer_lines import (
    AlarmLine,
    DiagnosisLine,
    RankLine,
    alarm_lines,
    diagnosis_lines,
    rank_lines,
)
from faultset.evaluators.reports.figures.telemetry import Panel, panels
from faultset.evaluators.reports.time_axis import position, ticks
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.detection import alarm_facts

EPISODES_SHOWN = 12
_LEAST_HEALTHY = 2
"""No-fault episodes that are drawn in any case."""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """All about one episode."""

    episode: str
    title: str
    solved: str
    reference: float
    onset: float | None
    ticks: tuple[tuple[float, str], ...]
    panels: tuple[Panel, ...]
    alarms: tuple[tuple[AlarmLine, ...], tuple[AlarmLine, ...]]
    """Shown and folded."""
    ranks: tuple[tuple[RankLine, ...], tuple[RankLine, ...]]
    diagnoses: tuple[DiagnosisLine, ...]
    facts: tuple[tuple[str, str], ...]


def drawings(
    board: Leaderboard, scores: EpisodeScores, order: Sequence[EpisodeDifficulty], dataset: Path | None
) -> tuple[Drawing, ...]:
    """Draw at most `EPISODES_SHOWN` episodes, the least solved first."""
    by_episode = {one.episode: one for one in order}
    return tuple(
        _draw(scores.truths[episode], board, scores, by_episode.get(episode), dataset)
        for episode in chosen(scores, order)
    )


def chosen(scores: EpisodeScores, order: Sequence[EpisodeDifficulty]) -> list[str]:
    """Pick episodes: one for each fault while there are several, the least solved first, and some without a fault."""
    healthy_shown = max(_LEAST_HEALTHY, EPISODES_SHOWN - len(order))
    healthy = sorted(
        (e for e, truth in scores.truths.items() if not truth.faulty),
        key=lambda e: (-sum(_raised_alarm(scores, e)), e),
    )[:healthy_shown]
    faulty_shown = EPISODES_SHOWN - len(healthy)
    picked: list[str] = []
    for repeat in (False, True):
        for one in order:
            seen = {scores.truths[e].fault for e in picked}
            wanted = repeat or scores.truths[one.episode].fault not in seen
            if wanted and one.episode not in picked and len(picked) < faulty_shown:
                picked.append(one.episode)
    rank = {one.episode: i for i, one in enumerate(order)}
    return sorted(picked, key=lambda e: rank[e]) + healthy


def _raised_alarm(scores: EpisodeScores, episode: str) -> list[float]:
    """Return for each detector the share of seeds that raised an alarm in an episode."""
    detectors = scores.cases.get(Setting("detection", "detected"), {})
    return [alarm_facts(cases[episode]).raised_alarm for cases in detectors.values() if episode in cases]


def _draw(
    truth: Truth, board: Leaderboard, scores: EpisodeScores, hard: EpisodeDifficulty | None, dataset: Path | None
) -> Drawing:
    about = [("episode", truth.episode), ("application", truth.app), ("verdict", truth.verdict)]
    if truth.faulty:
        causes = ", ".join(" or ".join(names) for names in truth.causes)
        about += [("root cause", causes), ("level", truth.system_level or ""), ("type", truth.fault_type or "")]
    if hard is not None and hard.difficulty:
        about.append(("difficulty", hard.difficulty))
    return Drawing(
        episode=truth.episode,
        title=episode_title(truth),
        solved=_solved(truth, scores, hard),
        reference=position(truth.reference_end_ns, truth),
        onset=None if truth.onset_ns is None else position(truth.onset_ns, truth),
        ticks=ticks(truth),
        panels=panels(truth, dataset),
        alarms=alarm_lines(truth, scores, board),
        ranks=rank_lines(truth, scores),
        diagnoses=diagnosis_lines(truth, scores),
        facts=tuple((name, value) for name, value in about if value),
    )


def _solved(truth: Truth, scores: EpisodeScores, hard: EpisodeDifficulty | None) -> str:
    if hard is None:
        quiet = [raised < 0.5 for raised in _raised_alarm(scores, truth.episode)]
        return f"{sum(quiet)} of {len(quiet)} detectors raise no alarm" if quiet else ""
    words = ("detect it", "locate it given the alarm", "given the onset")
    parts = [
        f"{task.right} of {task.run} {word}"
        for task, word in zip(hard.tasks[:3], words, strict=True)
        if task is not None and task.run
    ]
    return ", ".join(parts) + ("" if is_headline(truth) else f" · {truth.verdict}")
