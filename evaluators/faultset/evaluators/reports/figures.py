"""Figures as positions in percent; the page draws them with CSS, so that they fit a phone and a wide screen."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from faultset.evaluators.leaderboards import wording
from faultset.evaluators.leaderboards.records import ALL_APPS, HEADLINE, Metric, Table
from faultset.evaluators.reports.facts import Facts


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One line of a forest plot."""

    name: str
    kind: str
    known: bool
    at: float
    low: float | None
    high: float | None
    text: str
    interval: str
    counts: str
    tip: str


@dataclass(frozen=True, kw_only=True)
class Forest:
    """Values with intervals, one line for each method, and where guessing lies."""

    title: str
    meaning: str
    bars: tuple[Bar, ...]
    floor: float | None
    floor_text: str


def forest(table: Table, name: str) -> Forest:
    """Draw one share of a table; values from 0 to 1 span the width."""
    metric = next(m for m in table.metrics if m.name == name)
    floor = table.floor.get(name)
    bars = []
    for entry in table.entries:
        estimate = entry.metrics[name]
        shown = estimate.interval_known
        bars.append(
            Bar(
                name=entry.baseline,
                kind=entry.kind,
                known=estimate.known,
                at=_percent(estimate.value),
                low=_percent(estimate.low) if shown else None,
                high=_percent(estimate.high) if shown else None,
                text=wording.number(estimate.value, metric),
                interval=wording.interval(estimate, metric),
                counts=wording.counts(estimate, metric),
                tip=estimate.method or estimate.reason,
            )
        )
    return Forest(
        title=metric.title,
        meaning=metric.meaning,
        bars=tuple(bars),
        floor=None if floor is None else _percent(floor.value),
        floor_text="" if floor is None else wording.number(floor.value, metric),
    )


@dataclass(frozen=True, kw_only=True)
class Point:
    """Detectors that share a place in the trade-off."""

    number: int
    names: tuple[str, ...]
    kind: str
    x: float
    y: float
    left: float
    right: float
    bottom: float
    top: float
    text: str


def tradeoff(table: Table) -> tuple[Point, ...]:
    """Faults found against no-fault episodes with an alarm; detectors at the same place become one point."""
    places: dict[tuple[float, float], list[int]] = defaultdict(list)
    for i, entry in enumerate(table.entries):
        x, y = entry.metrics["false_positive_rate"], entry.metrics["event_recall"]
        if x.known and y.known:
            places[round(x.value, 3), round(y.value, 3)].append(i)
    points = []
    for number, ((x, y), members) in enumerate(sorted(places.items(), key=lambda p: (p[0][0], -p[0][1])), start=1):
        first = table.entries[members[0]]
        across, up = first.metrics["false_positive_rate"], first.metrics["event_recall"]
        kinds = {table.entries[i].kind for i in members}
        points.append(
            Point(
                number=number,
                names=tuple(table.entries[i].baseline for i in members),
                kind=next(kind for kind in ("named", "method", "rule", "control") if kind in kinds)
                if kinds & {"named", "method", "rule", "control"}
                else "method",
                x=inset(x),
                y=inset(y),
                left=inset(across.low if across.interval_known else x),
                right=inset(across.high if across.interval_known else x),
                bottom=inset(up.low if up.interval_known else y),
                top=inset(up.high if up.interval_known else y),
                text=f"found {y:.0%} of faults, alarmed in {x:.0%} of no-fault episodes",
            )
        )
    return tuple(points)


def inset(share: float) -> float:
    """Place a share in a plane with a margin, so that points at its corners stay whole."""
    return round(5 + 0.9 * _percent(share), 2)


@dataclass(frozen=True, kw_only=True)
class Delays:
    """Times from onset to the first true alarm of one detector, one dot for each fault episode."""

    name: str
    kind: str
    dots: tuple[tuple[float, str], ...]
    missed: int
    n: int
    median: str


def delays(facts: Facts, table: Table) -> tuple[tuple[Delays, ...], float]:
    """Dots on a common axis of seconds, and the axis' length."""
    metric = Metric(name="", title="", unit="s")
    lines: list[tuple[str, str, list[tuple[float, str]], int]] = []
    longest = 1.0
    for entry in table.entries:
        episodes = [
            one
            for one in facts.detection[entry.baseline].values()
            if one.truth.verdict == table.verdict and one.truth.faulty and table.app in (ALL_APPS, one.truth.app)
        ]
        longest = max([longest, *(one.window_s for one in episodes)])
        found = [
            (one.delay_s, f"{one.truth.fault} on {', '.join(one.truth.targets)}: {one.delay_s:.1f} s")
            for one in episodes
            if math.isfinite(one.delay_s)
        ]
        lines.append((entry.baseline, entry.kind, sorted(found), len(episodes) - len(found)))
    medians = {entry.baseline: wording.number(entry.metrics["ttd_median"].value, metric) for entry in table.entries}
    return (
        tuple(
            Delays(
                name=name,
                kind=kind,
                dots=tuple((min(100.0, 100 * delay / longest), tip) for delay, tip in found),
                missed=missed,
                n=missed + len(found),
                median=medians[name],
            )
            for name, kind, found, missed in lines
        ),
        longest,
    )


@dataclass(frozen=True, kw_only=True)
class HeatCell:
    """Share of a fault's episodes that a method got right; None where it was not asked."""

    value: float | None
    text: str
    tip: str


@dataclass(frozen=True, kw_only=True)
class Heat:
    """Methods across, faults down."""

    title: str
    meaning: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, str, int, tuple[HeatCell, ...]], ...]
    """(fault, verdict or kind of row, episodes, cells)."""


def heats(facts: Facts) -> tuple[Heat, ...]:
    """One heat map for detection and one for localization under each protocol."""
    found: list[Heat] = []
    if facts.detection:
        values = {
            name: {e: one.found if one.truth.faulty else 1 - one.yes for e, one in episodes.items()}
            for name, episodes in facts.detection.items()
        }
        meaning = "share of episodes with a true alarm; in rows without a fault, share of episodes without any alarm"
        found.append(_heat("Detection", meaning, facts, values))
    for protocol, title in (("detected", "Localization, told the alarm"), ("oracle", "Localization, told the onset")):
        if protocol in facts.localization:
            values = {
                name: {e: one.ac1 for e, one in episodes.items()}
                for name, episodes in facts.localization[protocol].items()
            }
            found.append(_heat(title, "AC@1 of each fault", facts, values))
    return tuple(found)


def _heat(title: str, meaning: str, facts: Facts, values: dict[str, dict[str, float]]) -> Heat:
    names = facts.ordered(values)
    asked = {episode for episodes in values.values() for episode in episodes}
    lines: dict[tuple[int, str, str], list[str]] = defaultdict(list)
    for episode in sorted(asked):
        truth = facts.truths[episode]
        if truth.faulty:
            order = (HEADLINE, "latent", "silent").index(truth.verdict) if truth.verdict in _VERDICTS else 3
            lines[order, str(truth.fault), truth.verdict].append(episode)
        else:
            lines[9, f"no fault ({truth.no_fault_kind or 'plain'})", "no fault"].append(episode)
    rows = []
    for (_, label, verdict), episodes in sorted(lines.items()):
        cells = tuple(_heat_cell(values[name], episodes, name, label) for name in names)
        rows.append((label, verdict, len(episodes), cells))
    return Heat(
        title=title,
        meaning=meaning,
        columns=tuple((name, facts.kinds[name]) for name in names),
        rows=tuple(rows),
    )


_VERDICTS = (HEADLINE, "latent", "silent")


def _heat_cell(values: dict[str, float], episodes: Sequence[str], name: str, label: str) -> HeatCell:
    known = [values[e] for e in episodes if e in values]
    if not known:
        return HeatCell(value=None, text="", tip=f"{name} was not asked about {label}")
    mean = sum(known) / len(known)
    tip = f"{name} on {label}: {wording.short(sum(known))} of {len(known)}"
    return HeatCell(value=mean, text=f"{mean:.1f}".removeprefix("0") if 0 < mean < 1 else f"{mean:.0f}", tip=tip)


def _percent(value: float) -> float:
    if math.isnan(value):
        return 0.0
    return round(100 * min(1.0, max(0.0, value)), 2)
