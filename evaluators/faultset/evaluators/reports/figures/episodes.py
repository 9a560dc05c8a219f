"""One episode drawn: what clients and services showed, its phases, and what each method answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from faultset.evaluators.leaderboards.records import Leaderboard, is_headline
from faultset.evaluators.reports.answer_lines import (
    AlarmLine,
    DiagnosisLine,
    RankLine,
    alarm_lines,
    diagnosis_lines,
    rank_lines,
)
from faultset.evaluators.reports.derived_scores import Facts
from faultset.evaluators.reports.episode_difficulty import Hardness, what
from faultset.evaluators.reports.figures.telemetry import Panel, panels
from faultset.evaluators.reports.figures.time_axis import place, ticks
from faultset.evaluators.results.rows import Truth

EPISODES_SHOWN = 12
_HEALTHY_SHOWN = 2
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


def drawings(board: Leaderboard, facts: Facts, order: Sequence[Hardness], dataset: Path) -> tuple[Drawing, ...]:
    """Draw at most `EPISODES_SHOWN` episodes, the least solved first."""
    by_episode = {one.episode: one for one in order}
    return tuple(
        _draw(facts.truths[episode], board, facts, by_episode.get(episode), dataset) for episode in chosen(facts, order)
    )


def chosen(facts: Facts, order: Sequence[Hardness]) -> list[str]:
    """Pick episodes: one for each fault while there are several, the least solved first, and some without a fault."""
    room_for_calm = max(_HEALTHY_SHOWN, EPISODES_SHOWN - len(order))
    healthy = sorted(
        (e for e, truth in facts.truths.items() if not truth.faulty),
        key=lambda e: (-sum(by[e].yes for by in facts.heard.values() if e in by), e),
    )[:room_for_calm]
    room = EPISODES_SHOWN - len(healthy)
    picked: list[str] = []
    for repeat in (False, True):
        for one in order:
            seen = {facts.truths[e].fault for e in picked}
            wanted = repeat or facts.truths[one.episode].fault not in seen
            if wanted and one.episode not in picked and len(picked) < room:
                picked.append(one.episode)
    rank = {one.episode: i for i, one in enumerate(order)}
    return sorted(picked, key=lambda e: rank[e]) + healthy


def _draw(truth: Truth, board: Leaderboard, facts: Facts, hard: Hardness | None, dataset: Path) -> Drawing:
    about = [("episode", truth.episode), ("application", truth.app), ("verdict", truth.verdict)]
    if truth.faulty:
        causes = ", ".join(" or ".join(names) for names in truth.causes)
        about += [("root cause", causes), ("level", truth.system_level or ""), ("type", truth.fault_type or "")]
    if hard is not None and hard.difficulty:
        about.append(("difficulty", hard.difficulty))
    return Drawing(
        episode=truth.episode,
        title=what(truth),
        solved=_solved(truth, facts, hard),
        reference=place(truth.reference_end_ns, truth),
        onset=None if truth.onset_ns is None else place(truth.onset_ns, truth),
        ticks=ticks(truth),
        panels=panels(truth, dataset),
        alarms=alarm_lines(truth, facts, board),
        ranks=rank_lines(truth, facts),
        diagnoses=diagnosis_lines(truth, facts),
        facts=tuple((name, value) for name, value in about if value),
    )


def _solved(truth: Truth, facts: Facts, hard: Hardness | None) -> str:
    if hard is None:
        quiet = [by[truth.episode].yes < 0.5 for by in facts.heard.values() if truth.episode in by]
        return f"{sum(quiet)} of {len(quiet)} detectors stay silent" if quiet else ""
    words = ("detect it", "locate it when told the alarm", "when told the onset")
    parts = [
        f"{task.right} of {task.asked} {word}"
        for task, word in zip(hard.tasks[:3], words, strict=True)
        if task is not None and task.asked
    ]
    return ", ".join(parts) + ("" if is_headline(truth) else f" · {truth.verdict}")
