"""Scatter plots with a point for each method, and names beside the points where they fit."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from faultset.evaluators.leaderboards import number_formats
from faultset.evaluators.leaderboards.records import ALL_APPS, Entry, Table, is_headline
from faultset.evaluators.leaderboards.scores import EpisodeScores, kind_rank

_WIDE, _NARROW = (540.0, 360.0), (290.0, 250.0)
"""Sizes in pixels for which names are placed: a card on a screen, and on a phone."""
_LETTER, _LINE, _GAP = 6.7, 15.0, 9.0
_MARGIN = 5.0
_FEWEST = 5
"""Methods from which on a plot of costs is drawn."""


@dataclass(frozen=True, kw_only=True)
class Dot:
    """Methods that share a place; `wide` and `narrow` say on which side their names stand, if anywhere."""

    names: tuple[str, ...]
    label: str
    kind: str
    x: float
    y: float
    wide: str
    narrow: str
    tip: str


@dataclass(frozen=True, kw_only=True)
class ScatterPlot:
    """A scatter plot in percent; y grows upwards."""

    title: str
    meaning: str
    x_title: str
    y_title: str
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    dots: tuple[Dot, ...]
    chance: str
    """Points of the chance line in a box of 100 by 100, y downwards; empty without one."""


def tradeoff(scores: EpisodeScores, table: Table) -> ScatterPlot | None:
    """Faults detected against false alarms per hour; the dashed line is what alarms at random times would detect."""
    places = _places(table, "false_alarms_per_hour", "event_recall")
    if len(places) < 2:
        return None
    most = max(1.0, *(x for _, x, _ in places))
    across = lambda rate: inset(math.sqrt(min(1.0, rate / most)))  # noqa: E731
    windows = [
        truth.view_end_ns - truth.onset_ns
        for truth in scores.truths.values()
        if truth.onset_ns is not None and is_headline(truth) and table.app in (ALL_APPS, truth.app)
    ]
    line = []
    for step in range(41):
        rate = most * (step / 40) ** 2
        found = [1 - math.exp(-rate * window / 3.6e12) for window in windows]
        line.append(f"{across(rate):.1f},{100 - inset(sum(found) / len(found)):.1f}" if found else "")
    return ScatterPlot(
        title="Trade-off",
        meaning="top left is best; the dashed line is what alarms at random times would detect",
        x_title="false alarms per hour without a fault →",
        y_title="↑ faults detected (event recall)",
        x_ticks=tuple((across(rate), f"{rate:g}") for rate in _round_rates(most)),
        y_ticks=SHARES,
        dots=dots_of(
            [(entry, across(x), inset(y)) for entry, x, y in places],
            {entry.baseline: f"detected {y:.0%} of faults, {x:.1f} false alarms per hour" for entry, x, y in places},
        ),
        chance=" ".join(line) if windows else "",
    )


def cost(table: Table) -> ScatterPlot | None:
    """Processor time of an answer against the first metric of a table."""
    metric = table.metrics[0]
    places = [
        (entry, entry.seconds, entry.metrics[metric.name].value)
        for entry in table.entries
        if entry.metrics[metric.name].known and entry.seconds > 0
    ]
    if len(places) < _FEWEST:
        return None
    low = math.floor(min(math.log10(x) for _, x, _ in places))
    high = max(low + 1, math.ceil(max(math.log10(x) for _, x, _ in places)))
    across = lambda x: inset((math.log10(x) - low) / (high - low))  # noqa: E731
    floor = table.floor.get(metric.name)
    level = None if floor is None else 100 - inset(floor.value)
    return ScatterPlot(
        title=table.title,
        meaning="top left is best: accurate and cheap" + ("; the dashed line is guessing" if floor else ""),
        x_title="median processor time of an answer →",
        y_title=f"↑ {metric.title}",
        x_ticks=tuple((across(10.0**power), _power(power)) for power in range(low, high + 1)),
        y_ticks=SHARES,
        dots=dots_of(
            [(entry, across(x), inset(y)) for entry, x, y in places],
            {
                entry.baseline: f"{metric.title} {number_formats.number(y, metric)}, {number_formats.seconds(x)}"
                for entry, x, y in places
            },
        ),
        chance="" if level is None else f"0,{level:.1f} 100,{level:.1f}",
    )


def _places(table: Table, x: str, y: str) -> list[tuple[Entry, float, float]]:
    return [
        (entry, entry.metrics[x].value, entry.metrics[y].value)
        for entry in table.entries
        if entry.metrics[x].known and entry.metrics[y].known
    ]


def inset(share: float) -> float:
    """Leave a margin, so that points at the corners stay whole."""
    return round(_MARGIN + (100 - 2 * _MARGIN) * min(1.0, max(0.0, share)), 2)


SHARES = tuple((inset(n / 4), f"{25 * n} %") for n in range(5))


def _round_rates(most: float) -> list[float]:
    chosen: list[float] = [0.0]
    for rate in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000):
        if rate <= most and math.sqrt(rate / most) - math.sqrt(chosen[-1] / most) >= 0.11:
            chosen.append(rate)
    return chosen


def _power(power: int) -> str:
    if power >= 0:
        return f"{10**power} s"
    return f"{10 ** (power + 3)} ms" if power >= -3 else f"{10 ** (power + 6)} µs"


def dots_of(places: Sequence[tuple[Entry, float, float]], tips: Mapping[str, str]) -> tuple[Dot, ...]:
    """Merge methods at one place and name as many points as fit, the highest first."""
    merged: dict[tuple[float, float], list[Entry]] = defaultdict(list)
    for entry, x, y in places:
        merged[round(x, 1), round(y, 1)].append(entry)
    groups = sorted(merged.items(), key=lambda p: (all(e.kind == "control" for e in p[1]), -p[0][1], p[0][0]))
    members = [sorted(entries, key=lambda e: (kind_rank(e.kind), e.rank)) for _, entries in groups]
    labels = [entries[0].baseline + (f" +{len(entries) - 1}" if len(entries) > 1 else "") for entries in members]
    points = [place for place, _ in groups]
    sides = [_sides(points, labels, size) for size in (_WIDE, _NARROW)]
    return tuple(
        Dot(
            names=tuple(entry.baseline for entry in entries),
            label=label,
            kind=entries[0].kind,
            x=x,
            y=y,
            wide=wide,
            narrow=narrow,
            tip=f"{', '.join(e.baseline for e in entries)}: {tips[entries[0].baseline]}",
        )
        for (x, y), entries, label, wide, narrow in zip(points, members, labels, *sides, strict=True)
    )


Box = tuple[float, float, float, float]


def _sides(points: Sequence[tuple[float, float]], labels: Sequence[str], size: tuple[float, float]) -> list[str]:
    """Choose for each point the side on which its name covers nothing; "" where there is none."""
    width, height = size
    centres = [(x / 100 * width, (100 - y) / 100 * height) for x, y in points]
    taken: list[Box] = [(x - 6, y - 6, x + 6, y + 6) for x, y in centres]
    chosen = []
    for (x, y), label in zip(centres, labels, strict=True):
        length = len(label) * _LETTER
        boxes = {
            "r": (x + _GAP, y - _LINE / 2, x + _GAP + length, y + _LINE / 2),
            "l": (x - _GAP - length, y - _LINE / 2, x - _GAP, y + _LINE / 2),
            "t": (x - length / 2, y - _GAP - _LINE, x + length / 2, y - _GAP),
            "b": (x - length / 2, y + _GAP, x + length / 2, y + _GAP + _LINE),
        }
        side = next((s for s, box in boxes.items() if _inside(box, size) and not _hit(box, taken)), "")
        if side:
            taken.append(boxes[side])
        chosen.append(side)
    return chosen


def _inside(box: Box, size: tuple[float, float]) -> bool:
    return box[0] >= 0 and box[1] >= 0 and box[2] <= size[0] and box[3] <= size[1]


def _hit(box: Box, taken: Sequence[Box]) -> bool:
    return any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in taken)
