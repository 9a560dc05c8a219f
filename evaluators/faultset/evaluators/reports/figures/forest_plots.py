"""Forest plots of values with intervals; positions are in percent."""

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
    """A line of a forest plot."""

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
    """Values with intervals, and the score of guessing."""

    title: str
    meaning: str
    shown: tuple[Bar, ...]
    folded: tuple[Bar, ...]
    floor: float | None
    floor_text: str


def forest(table: Table, name: str, *, methods: int = 10, controls: int = 3) -> Forest:
    """Return the forest plot of a share."""
    metric = find_metric(table, name)
    floor = table.floor.get(name)
    kinds = {entry.baseline: entry.kind for entry in table.entries}
    bars = {entry.baseline: _build_bar(entry, metric) for entry in table.entries}
    shown, folded = top_methods(list(bars), kinds, methods=methods, controls=controls)
    return Forest(
        title=metric.title,
        meaning=metric.meaning,
        shown=tuple(bars[name] for name in shown),
        folded=tuple(bars[name] for name in folded),
        floor=None if floor is None else percent(floor.value),
        floor_text="" if floor is None else number_formats.number(floor.value, metric),
    )


def find_metric(table: Table, name: str) -> Metric:
    """Return a metric of a table by its name."""
    return next(metric for metric in table.metrics if metric.name == name)


def _build_bar(entry: Entry, metric: Metric) -> Bar:
    estimate = entry.metrics[metric.name]
    has_interval = estimate.interval_known
    counts = number_formats.counts(estimate, metric)
    return Bar(
        name=entry.baseline,
        kind=entry.kind,
        known=estimate.known,
        at=percent(estimate.value),
        low=percent(estimate.low) if has_interval else None,
        high=percent(estimate.high) if has_interval else None,
        text=number_formats.value(estimate, metric),
        interval=number_formats.interval(estimate, metric),
        tip=" · ".join(text for text in (counts, estimate.method or estimate.reason) if text),
    )


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A number of a matrix."""

    text: str
    interval: str
    value: float | None
    tip: str


@dataclass(frozen=True, kw_only=True)
class Systems:
    """A matrix with a row for each method and a column for each system.

    The second-last column pools all systems, and the last one predicts the result on one more system.
    """

    title: str
    columns: tuple[tuple[str, int], ...]
    """(application, number of fault episodes), without the column for the prediction."""
    shown: tuple[tuple[str, str, tuple[Cell, ...]], ...]
    """(method, kind, cells)."""
    folded: tuple[tuple[str, str, tuple[Cell, ...]], ...]
    floor: tuple[str, ...]


def systems(tables: Sequence[Table], *, methods: int = 10, controls: int = 3) -> Systems:
    """Compare the first metric over the tables of several applications; the last table pools them."""
    pooled = tables[-1]
    metric = pooled.metrics[0]
    kinds = {entry.baseline: entry.kind for entry in pooled.entries}
    entries = [{entry.baseline: entry for entry in table.entries} for table in tables]
    estimates = {entry.baseline: entry.across for entry in pooled.entries}

    def lines(names: Sequence[str]) -> tuple[tuple[str, str, tuple[Cell, ...]], ...]:
        rows = []
        for name in names:
            cells = [
                _build_cell(
                    by_method[name].metrics[metric.name] if name in by_method else None, metric, name, table.app
                )
                for by_method, table in zip(entries, tables, strict=True)
            ]
            cells.append(_build_cell(estimates[name], metric, name, "one more system"))
            rows.append((name, kinds[name], tuple(cells)))
        return tuple(rows)

    shown, folded = top_methods(list(kinds), kinds, methods=methods, controls=controls)
    return Systems(
        title=metric.title,
        columns=tuple((table.app, table.episodes) for table in tables),
        shown=lines(shown),
        folded=lines(folded),
        floor=tuple(number_formats.number(_find_floor(table.floor, metric), metric) for table in tables),
    )


def _find_floor(floor: Mapping[str, Estimate], metric: Metric) -> float:
    return floor[metric.name].value if metric.name in floor else math.nan


def _build_cell(estimate: Estimate | None, metric: Metric, name: str, system: str) -> Cell:
    if estimate is None or not estimate.known:
        return Cell(text=number_formats.NONE, interval="", value=None, tip=f"{name} was not scored on {system}")
    return Cell(
        text=number_formats.number(estimate.value, metric),
        interval=number_formats.interval(estimate, metric),
        value=min(1.0, max(0.0, estimate.value)),
        tip=f"{name}, {system}: {estimate.method or estimate.reason}",
    )


@dataclass(frozen=True, kw_only=True)
class FirstRanks:
    """How often a localizer ranks a cause, a symptom or something else first, in percent."""

    name: str
    kind: str
    parts: tuple[tuple[str, float, str], ...]
    """(class, width, words)."""


def first_ranks(
    misses: Sequence[Misses], protocol: str, kinds: Mapping[str, str]
) -> tuple[list[FirstRanks], list[FirstRanks]]:
    """Return the localizers to show and the localizers to collapse, sorted by how often they rank a cause first."""
    protocol_misses = sorted(
        (m for m in misses if m.protocol == protocol), key=lambda m: (-m.hit, -m.symptom, m.baseline)
    )
    bars = {
        m.baseline: FirstRanks(
            name=m.baseline,
            kind=kinds.get(m.baseline, "method"),
            parts=tuple(
                (kind_of_answer, round(100 * share, 2), f"{kind_of_answer} {share:.0%}")
                for kind_of_answer, share in (
                    ("cause", m.hit),
                    ("symptom", m.symptom),
                    ("unrelated", m.unrelated),
                    ("none", m.none),
                )
            ),
        )
        for m in protocol_misses
    }
    shown, folded = top_methods(list(bars), {name: bar.kind for name, bar in bars.items()})
    return [bars[name] for name in shown], [bars[name] for name in folded]


def percent(value: float) -> float:
    """Return a share in percent; 0 if it is unknown."""
    if math.isnan(value):
        return 0.0
    return round(100 * min(1.0, max(0.0, value)), 2)
