"""Heat maps with a row for each method and a column for each fault."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from faultset.evaluators.leaderboards import number_formats
from faultset.evaluators.leaderboards.records import HEADLINE
from faultset.evaluators.leaderboards.scores import EpisodeScores, Setting
from faultset.evaluators.reports.method_cards import top_methods
from faultset.evaluators.results.truth import UNNOTICED

_VERDICTS = (HEADLINE, "latent", "silent", UNNOTICED)
_TASKS = (
    (
        "detection",
        "Detection",
        "share of episodes with a true alarm; without a fault, share of episodes without any alarm",
    ),
    ("localization", "Localization", "AC@1"),
    ("rca", "Root cause", "system level and fault type both right"),
)
Values = Mapping[str, Mapping[str, float]]
"""Baseline -> episode -> score."""


@dataclass(frozen=True, kw_only=True)
class HeatCell:
    """Score of a method on the episodes of a fault; None if it was not run."""

    value: float | None
    text: str
    tip: str


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """A heat map; the first cell of each row is the mean over headline episodes."""

    title: str
    meaning: str
    columns: tuple[tuple[str, str, int], ...]
    """(fault, verdict or "no fault", episodes)."""
    shown: tuple[tuple[str, str, tuple[HeatCell, ...]], ...]
    """(method, kind, cells)."""
    folded: tuple[tuple[str, str, tuple[HeatCell, ...]], ...]


def heat_maps(scores: EpisodeScores) -> tuple[HeatMap, ...]:
    """Return a heat map for each task and protocol, without methods that are ranked separately."""
    maps = []
    for task, title, meaning in _TASKS:
        for protocol, suffix in (("detected", ", given the alarm"), ("oracle", ", given the onset")):
            values = {
                name: by_episode
                for name, by_episode in scores.compute_ranked_correctness(Setting(task, protocol)).items()
                if by_episode
            }
            if Setting(task, protocol) in scores.cases:
                maps.append(_build_heat_map(title + (suffix if task != "detection" else ""), meaning, scores, values))
    return tuple(maps)


def _build_heat_map(title: str, meaning: str, scores: EpisodeScores, values: Values) -> HeatMap:
    episodes_run = {episode for episodes in values.values() for episode in episodes}
    groups: dict[tuple[int, str, str], list[str]] = defaultdict(list)
    for episode in sorted(episodes_run):
        truth = scores.truths[episode]
        if truth.faulty:
            order = _VERDICTS.index(truth.verdict) if truth.verdict in _VERDICTS else 0
            groups[order, str(truth.fault), truth.verdict].append(episode)
        else:
            groups[9, truth.no_fault_kind or "plain", "no fault"].append(episode)
    columns = sorted(groups.items())
    headline = [e for (order, _, _), episodes in columns if order == 0 for e in episodes]
    mean = {
        name: _compute_mean([by_episode[e] for e in headline if e in by_episode]) for name, by_episode in values.items()
    }
    ranked = sorted(values, key=lambda name: (-mean[name], name))
    shown, folded = top_methods(ranked, scores.kinds, methods=12, controls=4)

    def rows(names: Sequence[str]) -> tuple[tuple[str, str, tuple[HeatCell, ...]], ...]:
        lines = []
        for name in names:
            cells = [_build_heat_cell(values[name], headline, name, "all headline faults", decimals=2)]
            cells += [_build_heat_cell(values[name], episodes, name, label) for (_, label, _), episodes in columns]
            lines.append((name, scores.kinds[name], tuple(cells)))
        return tuple(lines)

    return HeatMap(
        title=title,
        meaning=meaning,
        columns=tuple((label, verdict, len(episodes)) for (_, label, verdict), episodes in columns),
        shown=rows(shown),
        folded=rows(folded),
    )


def _compute_mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _build_heat_cell(
    values: Mapping[str, float], episodes: Sequence[str], name: str, label: str, *, decimals: int = 1
) -> HeatCell:
    scores = [values[e] for e in episodes if e in values]
    if not scores:
        return HeatCell(value=None, text="", tip=f"{name} was not run on {label}")
    mean = _compute_mean(scores)
    short = f"{mean:.1f}".removeprefix("0") if 0.05 <= mean < 0.95 else f"{mean:.0f}"
    tip = f"{name} on {label}: {number_formats.short(sum(scores))} of {len(scores)}"
    return HeatCell(value=mean, text=f"{mean:.2f}" if decimals == 2 else short, tip=tip)
