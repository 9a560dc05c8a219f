"""Forest plots: values with intervals, one line for each method, as positions in percent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from faultset.evaluators.leaderboards import number_formats
from faultset.evaluators.leaderboards.records import Entry, Misses, Table
from faultset.evaluators.reports.method_cards import top_methods
from faultset.evaluators.scoring.metrics import Metric
from faultset.evaluators.statistics.intervals import Estimate


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
    tip: str


@dataclass(frozen=True, kw_only=True)
class Forest:
    """Values with intervals and where guessing lies; the tail is folded."""

    title: str
    meaning: str
    shown: tuple[Bar, ...]
    folded: tuple[Bar, ...]
    floor: float | None
    floor_text: str


def forest(table: Table, name: str, *, methods: int = 10, controls: int = 3) -> Forest:
    """Draw one share of a table; values from 0 to 1 span the width."""
    metric = metric_of(table, name)
    floor = table.floor.get(name)
    kinds = {entry.baseline: entry.kind for entry in table.entries}
    bars = {entry.baseline: _bar(entry, metric) for entry in table.entries}
    shown, folded = top_methods(list(bars), kinds, methods=methods, controls=controls)
    return Forest(
        title=metric.title,
        meaning=metric.meaning,
        shown=tuple(bars[name] for name in shown),
        folded=tuple(bars[name] for name in folded),
        floor=None if floor is None else percent(floor.value),
        floor_text="" if floor is None else number_formats.number(floor.value, metric),
    )


def metric_of(table: Table, name: str) -> Metric:
    """Find a metric of a table."""
    return next(metric for metric in table.metrics if metric.name == name)


def _bar(entry: Entry, metric: Metric) -> Bar:
    estimate = entry.metrics[metric.name]
    shown = estimate.interval_known
    counts = number_formats.counts(estimate, metric)
    return Bar(
        name=entry.baseline,
        kind=entry.kind,
        known=estimate.known,
        at=percent(estimate.value),
        low=percent(estimate.low) if shown else None,
        high=percent(estimate.high) if shown else None,
        text=number_formats.value(estimate, metric),
        interval=number_formats.interval(estimate, metric),
        tip=" · ".join(part for part in (counts, estimate.method or estimate.reason) if part),
    )


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One number of a matrix."""

    text: str
    interval: str
    value: float | None
    tip: str


@dataclass(frozen=True, kw_only=True)
class Systems:
    """Methods down, systems across, all systems together last."""

    title: str
    columns: tuple[tuple[str, int], ...]
    """(application, fault episodes)."""
    shown: tuple[tuple[str, str, tuple[Cell, ...]], ...]
    """(method, kind, cells); the last cell is the prediction for one more system."""
    folded: tuple[tuple[str, str, tuple[Cell, ...]], ...]
    floor: tuple[str, ...]


def systems(tables: Sequence[Table], *, methods: int = 10, controls: int = 3) -> Systems:
    """Put the first metric of tables of several applications side by side; the last table pools them."""
    pooled = tables[-1]
    metric = pooled.metrics[0]
    kinds = {entry.baseline: entry.kind for entry in pooled.entries}
    by_table = [{entry.baseline: entry for entry in table.entries} for table in tables]
    across = {entry.baseline: entry.across for entry in pooled.entries}

    def lines(names: Sequence[str]) -> tuple[tuple[str, str, tuple[Cell, ...]], ...]:
        found = []
        for name in names:
            cells = [
                _cell(by[name].metrics[metric.name] if name in by else None, metric, name, table.app)
                for by, table in zip(by_table, tables, strict=True)
            ]
            cells.append(_cell(across[name], metric, name, "one more system"))
            found.append((name, kinds[name], tuple(cells)))
        return tuple(found)

    shown, folded = top_methods(list(kinds), kinds, methods=methods, controls=controls)
    return Systems(
        title=metric.title,
        columns=tuple((table.app, table.episodes) for table in tables),
        shown=lines(shown),
        folded=lines(folded),
        floor=tuple(number_formats.number(_floor(table.floor, metric), metric) for table in tables),
    )


def _floor(floor: Mapping[str, Estimate], metric: Metric) -> float:
    return floor[metric.name].value if metric.name in floor else math.nan


def _cell(estimate: Estimate | None, metric: Metric, name: str, where: str) -> Cell:
    if estimate is None or not estimate.known:
        return Cell(text=number_formats.NONE, interval="", value=None, tip=f"{name} was not scored on {where}")
    return Cell(
        text=number_formats.number(estimate.value, metric),
        interval=number_formats.interval(estimate, metric),
        value=min(1.0, max(0.0, estimate.value)),
        tip=f"{name}, {where}: {estimate.method or estimate.reason}",
    )


@dataclass(frozen=True, kw_only=True)
class FirstPlaces:
    """What one localizer puts first, as shares in percent that add up to 100."""

    name: str
    kind: str
    parts: tuple[tuple[str, float, str], ...]
    """(class, width, words)."""


def first_places(
    misses: Sequence[Misses], protocol: str, kinds: Mapping[str, str]
) -> tuple[list[FirstPlaces], list[FirstPlaces]]:
    """Stacked bars, most causes first; what is shown and what is folded."""
    own = sorted((m for m in misses if m.protocol == protocol), key=lambda m: (-m.hit, -m.symptom, m.baseline))
    bars = {
        m.baseline: FirstPlaces(
            name=m.baseline,
            kind=kinds.get(m.baseline, "method"),
            parts=tuple(
                (part, round(100 * share, 2), f"{part} {share:.0%}")
                for part, share in (
                    ("cause", m.hit),
                    ("symptom", m.symptom),
                    ("unrelated", m.unrelated),
                    ("none", m.none),
                )
            ),
        )
        for m in own
    }
    shown, folded = top_methods(list(bars), {name: bar.kind for name, bar in bars.items()})
    return [bars[name] for name in shown], [bars[name] for name in folded]


def percent(value: float) -> float:
    """Place a share on a track; unknown values at its beginning."""
    if math.isnan(value):
        return 0.0
    return round(100 * min(1.0, max(0.0, value)), 2)
