"""Methods over several systems: one column for each, mean rank, and how often a method was as good as the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from faultset.evaluators.leaderboards.grids import Grid
from faultset.evaluators.leaderboards.leaderboard import leaderboard_of
from faultset.evaluators.leaderboards.records import ALL_APPS, HEADLINE, Entry, Table
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.statistics.intervals import Estimate


@dataclass(frozen=True, kw_only=True)
class SystemColumn:
    """One system: the headline table of one application of one evaluation."""

    name: str
    """Dataset, and application where the dataset has several."""
    episodes: int
    clusters: int
    best: str
    """Method with the highest value."""
    control: str | None


@dataclass(frozen=True, kw_only=True)
class SystemRow:
    """One method over all systems."""

    baseline: str
    kind: str
    values: Mapping[str, Estimate]
    """System -> first metric of its table; absent where the method was not run."""
    ranks: Mapping[str, float]
    """System -> rank among the methods of its table; equals share their mean rank."""
    mean_rank: float
    near_best: int
    """Systems in which its value lies within the interval of the best method's."""
    above_control: int
    """Systems in which it is above the strongest control, or is not below it and a control itself."""


@dataclass(frozen=True, kw_only=True)
class SystemsTable:
    """Methods by mean rank, best first; methods that were not run on all systems come last."""

    task: str
    protocol: str
    metric: str
    columns: tuple[SystemColumn, ...]
    rows: tuple[SystemRow, ...]


def systems_table(
    evaluations: Mapping[str, Sequence[ResultRow]], *, task: str = "localization", protocol: str = "oracle"
) -> SystemsTable:
    """Put the headline tables of several evaluations side by side.

    Parameters
    ----------
    evaluations
        Name -> rows of its evaluation.
    task, protocol
        Which table of each.

    Raises
    ------
    ValueError
        When no evaluation has such a table.
    """
    tables: dict[str, Table] = {}
    for name, rows in evaluations.items():
        board = leaderboard_of([row for row in rows if row.task == task])
        apps = [
            table
            for table in board.tables
            if (table.task, table.protocol, table.verdict, table.group) == (task, protocol, HEADLINE, "telemetry")
            and table.app != ALL_APPS
        ]
        for table in apps:
            tables[name if len(apps) == 1 else f"{name}, {table.app}"] = table
    if not tables:
        raise ValueError(f"no evaluation has a table of {task} with protocol {protocol}")
    metric = next(iter(tables.values())).metrics[0]
    sign = 1.0 if metric.better == "higher" else -1.0
    columns = []
    near: dict[str, int] = {}
    above: dict[str, int] = {}
    ranks: dict[str, dict[str, float]] = {}
    values: dict[str, dict[str, Estimate]] = {}
    kinds: dict[str, str] = {}
    for name, table in tables.items():
        found = {entry.baseline: entry.metrics[metric.name] for entry in table.entries}
        ordered = {one: sign * estimate.value for one, estimate in found.items() if estimate.known}
        best = max(sorted(ordered), key=ordered.__getitem__)
        control = table.strongest_control
        columns.append(
            SystemColumn(name=name, episodes=table.episodes, clusters=table.clusters, best=best, control=control)
        )
        for entry in table.entries:
            one = entry.baseline
            kinds[one] = entry.kind
            values.setdefault(one, {})[name] = found[one]
            if one not in ordered:
                continue
            ranks.setdefault(one, {})[name] = _rank(ordered, one)
            near[one] = near.get(one, 0) + _within(found[one], found[best])
            above[one] = above.get(one, 0) + _above(entry, ordered, control)
    rows = [
        SystemRow(
            baseline=one,
            kind=kinds[one],
            values=values[one],
            ranks=ranks.get(one, {}),
            mean_rank=sum(ranks[one].values()) / len(ranks[one]) if one in ranks else math.nan,
            near_best=near.get(one, 0),
            above_control=above.get(one, 0),
        )
        for one in values
    ]
    rows.sort(key=lambda row: (len(tables) - len(row.ranks), row.mean_rank, row.baseline))
    return SystemsTable(task=task, protocol=protocol, metric=metric.title, columns=tuple(columns), rows=tuple(rows))


def _rank(ordered: Mapping[str, float], name: str) -> float:
    """Return the rank, equals sharing their mean."""
    better = sum(value > ordered[name] + 1e-9 for value in ordered.values())
    equal = sum(abs(value - ordered[name]) <= 1e-9 for value in ordered.values())
    return better + (equal + 1) / 2


def _within(value: Estimate, best: Estimate) -> bool:
    if not best.interval_known:
        return abs(value.value - best.value) <= 1e-9
    return best.low <= value.value <= best.high


def _above(entry: Entry, ordered: Mapping[str, float], control: str | None) -> bool:
    if control is None or control not in ordered or entry.kind == "control":
        return False
    return ordered[entry.baseline] > ordered[control] + 1e-9


def systems_markdown(table: SystemsTable) -> str:
    """Write the table as Markdown; values are percent with their intervals."""
    header = ["method", "kind", *(column.name for column in table.columns)]
    header += ["mean rank", "near the best", "above every control"]
    sizes = [f"{column.episodes} in {column.clusters}" for column in table.columns]
    lines = [["*faults in clusters*", "", *sizes, "", "", ""]]
    total = len(table.columns)
    for row in table.rows:
        cells = [_cell(row.values.get(column.name)) for column in table.columns]
        known = len(row.ranks)
        ends = [
            f"{row.mean_rank:.1f}" if known else "",
            f"{row.near_best} of {known}",
            f"{row.above_control} of {known}",
        ]
        if known < total and known:
            ends[0] += f" ({known} systems)"
        lines.append([f"`{row.baseline}`", row.kind, *cells, *ends])
    return "\n".join(Grid.of(header, lines).markdown()) + "\n"


def _cell(estimate: Estimate | None) -> str:
    if estimate is None or not estimate.known:
        return "-"
    text = f"{100 * estimate.value:.0f}"
    return f"{text} [{100 * estimate.low:.0f}, {100 * estimate.high:.0f}]" if estimate.interval_known else text
