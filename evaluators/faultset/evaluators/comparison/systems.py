"""Compare methods over several systems."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from faultset.evaluators.leaderboards.leaderboard import build_leaderboard
from faultset.evaluators.leaderboards.records import ALL_APPS, HEADLINE, TELEMETRY, Table
from faultset.evaluators.leaderboards.texts import TextTable
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.scoring.intervals import Estimate
from faultset.evaluators.scoring.metrics import Metric

_EQUAL = 1e-9
"""Scores that differ by less are equal."""


@dataclass(frozen=True, kw_only=True)
class SystemColumn:
    """A system: one application of one evaluation, with its headline table."""

    name: str
    """Dataset, and application if the dataset has several."""
    episodes: int
    clusters: int
    best: str
    """The best method."""
    control: str | None


@dataclass(frozen=True, kw_only=True)
class SystemRow:
    """A method over all systems."""

    baseline: str
    kind: str
    values: Mapping[str, Estimate]
    """System -> first metric of its table, for systems on which the method was run."""
    ranks: Mapping[str, float]
    """System -> rank in its table; equal methods share their mean rank."""
    mean_rank: float
    near_best: frozenset[str]
    """Systems in which the method's value is within the interval of the best method."""
    beats_control: frozenset[str]
    """Systems in which the method is significantly better than the strongest control."""


@dataclass(frozen=True, kw_only=True)
class SystemsTable:
    """Methods sorted by mean rank; methods that were not run on all systems come last."""

    task: str
    protocol: str
    metric: str
    columns: tuple[SystemColumn, ...]
    rows: tuple[SystemRow, ...]


def compare_systems(
    evaluations: Mapping[str, Sequence[ResultRow]], *, task: str = "localization", protocol: str = "oracle"
) -> SystemsTable:
    """Compare the headline tables of several evaluations.

    `evaluations`: name -> rows of the evaluation.
    `task`, `protocol`: task and protocol of the tables.
    """
    tables = _find_headline_tables(evaluations, task, protocol)
    if not tables:
        raise ValueError(f"no evaluation has a table of {task} with protocol {protocol}")
    metric = next(iter(tables.values())).metrics[0]
    standings = {name: _Standing.of(table, metric) for name, table in tables.items()}
    kinds = {entry.baseline: entry.kind for table in tables.values() for entry in table.entries}
    rows = [_build_row(baseline, kind, standings) for baseline, kind in kinds.items()]
    rows.sort(key=lambda row: (len(tables) - len(row.ranks), row.mean_rank, row.baseline))
    columns = tuple(
        SystemColumn(
            name=name,
            episodes=table.episodes,
            clusters=table.clusters,
            best=standings[name].best,
            control=table.strongest_control,
        )
        for name, table in tables.items()
    )
    return SystemsTable(task=task, protocol=protocol, metric=metric.title, columns=columns, rows=tuple(rows))


def _find_headline_tables(evaluations: Mapping[str, Sequence[ResultRow]], task: str, protocol: str) -> dict[str, Table]:
    """Return the headline table of each application of each evaluation by name."""
    tables: dict[str, Table] = {}
    for name, rows in evaluations.items():
        board = build_leaderboard([row for row in rows if row.task == task])
        apps = [
            table
            for table in board.tables
            if table.key == (task, protocol, table.app, HEADLINE, TELEMETRY, "all") and table.app != ALL_APPS
        ]
        for table in apps:
            tables[name if len(apps) == 1 else f"{name}, {table.app}"] = table
    return tables


@dataclass(frozen=True, kw_only=True)
class _Standing:
    """The scores of a table, negated if lower is better."""

    estimates: Mapping[str, Estimate]
    scores: Mapping[str, float]
    """Method -> score, for methods with a known score."""
    best: str
    beats_control: frozenset[str]
    """Methods that are significantly better than the strongest control."""

    @classmethod
    def of(cls, table: Table, metric: Metric) -> _Standing:
        sign = 1.0 if metric.better == "higher" else -1.0
        estimates = {entry.baseline: entry.metrics[metric.name] for entry in table.entries}
        scores = {name: sign * estimate.value for name, estimate in estimates.items() if estimate.known}
        best = max(sorted(scores), key=scores.__getitem__)
        beats_control = frozenset(entry.baseline for entry in table.entries if entry.beats_control)
        return cls(estimates=estimates, scores=scores, best=best, beats_control=beats_control)


def _build_row(baseline: str, kind: str, standings: Mapping[str, _Standing]) -> SystemRow:
    scored = {name: standing for name, standing in standings.items() if baseline in standing.scores}
    ranks = {name: _compute_rank(standing.scores, baseline) for name, standing in scored.items()}
    return SystemRow(
        baseline=baseline,
        kind=kind,
        values={name: s.estimates[baseline] for name, s in standings.items() if baseline in s.estimates},
        ranks=ranks,
        mean_rank=sum(ranks.values()) / len(ranks) if ranks else math.nan,
        near_best=frozenset(n for n, s in scored.items() if _is_near(s.estimates[baseline], s.estimates[s.best])),
        beats_control=frozenset(name for name, s in scored.items() if baseline in s.beats_control),
    )


def _compute_rank(scores: Mapping[str, float], name: str) -> float:
    """Return the rank; equal methods share their mean rank."""
    better = sum(value > scores[name] + _EQUAL for value in scores.values())
    equal = sum(abs(value - scores[name]) <= _EQUAL for value in scores.values())
    return better + (equal + 1) / 2


def _is_near(value: Estimate, best: Estimate) -> bool:
    if not best.interval_known:
        return abs(value.value - best.value) <= _EQUAL
    return best.low - _EQUAL <= value.value <= best.high + _EQUAL


def format_systems(table: SystemsTable) -> str:
    """Return the table as Markdown; values are in percent with their intervals, bold where they beat the controls."""
    header = ["method", "kind", *(column.name for column in table.columns)]
    header += ["mean rank", "near the best", "beats every control"]
    sizes = [f"{column.episodes} in {column.clusters}" for column in table.columns]
    rows = [["*faults in clusters*", "", *sizes, "", "", ""]]
    total = len(table.columns)
    for row in table.rows:
        cells = [
            _format_cell(row.values.get(column.name), bold=column.name in row.beats_control) for column in table.columns
        ]
        count = len(row.ranks)
        summary_cells = [
            f"{row.mean_rank:.1f}" if count else "",
            f"{len(row.near_best)} of {count}",
            f"{len(row.beats_control)} of {count}",
        ]
        if 0 < count < total:
            summary_cells[0] += f" ({count} systems)"
        rows.append([f"`{row.baseline}`", row.kind, *cells, *summary_cells])
    return "\n".join(TextTable.of(header, rows).markdown()) + "\n"


def _format_cell(estimate: Estimate | None, *, bold: bool) -> str:
    if estimate is None or not estimate.known:
        return "-"
    text = f"{100 * estimate.value:.0f}"
    text = f"**{text}**" if bold else text
    return f"{text} [{100 * estimate.low:.0f}, {100 * estimate.high:.0f}]" if estimate.interval_known else text
