"""Render leaderboard tables as text, for the terminal, Markdown and HTML pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from faultset.core.printable import count_text
from faultset.evaluators.leaderboards.records import Entry, Failure, Table
from faultset.evaluators.leaderboards.texts import (
    TextCell,
    TextColumn,
    TextTable,
    format_counts,
    format_interval,
    format_mebibytes,
    format_number,
    format_seconds,
    format_value,
)
from faultset.evaluators.results.rows import CANNOT, NO_FAILURES
from faultset.evaluators.scoring.metrics import Metric

_RANK = TextColumn(title="#", justify="right", essential=True)
_NAME = TextColumn(title="baseline", essential=True)
_KIND = TextColumn(title="kind", meaning="kind of the method, its inputs beyond telemetry, and for reconstructions the "
    "range of scores over the settings that the paper leaves open")  # fmt: skip
_FAILED = TextColumn(
    title="failed", justify="right", meaning="answers that failed; they count as misses", essential=True
)
_CANNOT = TextColumn(title=CANNOT, justify="right", essential=True, meaning="missing answers for episodes that lack "
    "the tables that the method reads, or all data in the reference; they count as misses")  # fmt: skip
_CPU = TextColumn(title="CPU", justify="right", meaning="median processor time of an answer", essential=True)
_PAGE_COLUMNS = (
    TextColumn(title="fit", justify="right", meaning="median processor time of learning"),
    TextColumn(title="memory", justify="right", meaning="median of the peak memory of an answer"),
    TextColumn(title="over seeds", justify="right", meaning="standard deviation of the first metric over seeds"),
)


_COUNT_UNITS = ("share", "per hour", "per day")
"""Units of metrics that are computed from counts."""


def choose_columns(table: Table) -> tuple[Metric, ...]:
    """Return the metrics that a table shows on the terminal and in Markdown; JSON has all."""
    first, *others = (metric for metric in table.metrics if metric.headline)
    valued = [metric for metric in table.metrics if any(entry.metrics[metric.name].known for entry in table.entries)]
    second_metrics = [metric for metric in valued if metric.shown_second == "if known"]
    second_metrics += [
        metric for metric in valued if metric.shown_second == "if fewer episodes" and _differs(metric, first, table)
    ]
    return (first, *second_metrics, *(metric for metric in others if metric in valued and metric not in second_metrics))


def list_policy_metrics(table: Table) -> tuple[Metric, ...]:
    """Return the metrics that are computed with the thresholds of other policies."""
    return tuple(metric for metric in table.metrics if metric.policy)


def _differs(metric: Metric, first: Metric, table: Table) -> bool:
    """Return whether a metric of any method was computed on a different number of episodes than the first metric."""
    return any(entry.metrics[metric.name].n != entry.metrics[first.name].n for entry in table.entries)


def render_table(
    table: Table, metrics: Sequence[Metric] | None = None, *, kinds: bool = True, costs: bool = False
) -> TextTable:
    """Return a leaderboard table as text.

    `metrics`: metrics to show; by default, from `choose_columns`.
    `kinds`: whether there is a column for the kind of each method.
    `costs`: whether there are columns for the costs of learning, memory, and the spread over seeds.
    """
    metrics = choose_columns(table) if metrics is None else metrics
    control_column = TextColumn(
        title=f"vs {table.strongest_control or 'control'}",
        justify="right",
        meaning="difference from the strongest control in the ranking metric on the same episodes, with the "
        "Holm-corrected p of a paired test",
        brief=True,
        essential=True,
    )
    columns = [_RANK, _NAME, *([_KIND] if kinds else [])]
    first, *others = [
        _build_metric_column(metric, essential=metric is metrics[0] or metric.installed) for metric in metrics
    ]
    columns += [first, control_column, *others, _FAILED, _CANNOT, _CPU, *(_PAGE_COLUMNS if costs else ())]
    rows = [_render_entry(entry, metrics, kinds=kinds, costs=costs) for entry in table.entries]
    if table.floor:
        first_floor, *floors = (_format_floor(table, metric) for metric in metrics)
        floor = ["", "guessing", *([""] if kinds else []), first_floor, "", *floors]
        floor += [""] * (len(columns) - len(floor))
        rows.append([TextCell(text=text) for text in floor])
    text = TextTable(
        columns=tuple(columns),
        rows=tuple(map(tuple, rows)),
        kinds=(*(entry.kind for entry in table.entries), *(["floor"] if table.floor else [])),
    )
    optional = {n for n, column in enumerate(columns) if column in (control_column, _FAILED, _CANNOT)}
    return text.select([n for n in range(len(columns)) if n not in optional or any(row[n].text for row in rows)])


def _build_metric_column(metric: Metric, *, essential: bool = False) -> TextColumn:
    return TextColumn(
        title=metric.title, meaning=metric.meaning, justify="right", brief=metric.brief, essential=essential
    )


def _render_entry(entry: Entry, metrics: Sequence[Metric], *, kinds: bool, costs: bool) -> list[TextCell]:
    failed = {status: n for status, n in sorted(entry.failed.items()) if status not in NO_FAILURES}
    cells = [TextCell(text=str(entry.rank)), TextCell(text=entry.baseline)]
    cells += [TextCell(text=entry.kind_text)] if kinds else []
    first, *others = (_render_value(entry, metric) for metric in metrics)
    difference = TextCell(
        text=entry.difference_text,
        detail=entry.interval_text,
        counts="beats it" if entry.beats_control else "",
        tip="" if entry.against is None else entry.against.test.reason,
    )
    cells += [
        first,
        difference,
        *others,
        TextCell(
            text=str(sum(failed.values()) or ""),
            counts=", ".join(f"{n} {status.replace('_', ' ')}" for status, n in failed.items()),
        ),
        TextCell(text=str(entry.failed.get(CANNOT, ""))),
        TextCell(text=format_seconds(entry.seconds)),
    ]
    if costs:
        spread = TextCell()
        if entry.seed_spread is not None:
            spread = TextCell(text=f"± {entry.seed_spread:.2f}", counts=count_text(entry.seeds, "seed"))
        cells += [
            TextCell(text=format_seconds(entry.fit_seconds)),
            TextCell(text=format_mebibytes(entry.peak_bytes)),
            spread,
        ]
    return cells


def _render_value(entry: Entry, metric: Metric) -> TextCell:
    estimate = entry.metrics[metric.name]
    episodes = f" n={estimate.n}" if metric.shown_second == "if fewer episodes" else ""
    return TextCell(
        text=format_value(estimate, metric) + episodes,
        detail=format_interval(estimate, metric),
        counts=format_counts(estimate, metric) if metric.unit in _COUNT_UNITS and not episodes else "",
        tip="" if estimate.interval_known else estimate.reason,
    )


def _format_floor(table: Table, metric: Metric) -> str:
    estimate = table.floor.get(metric.name)
    return "" if estimate is None else format_number(estimate.value, metric)


def policy_tables(table: Table) -> dict[str, TextTable]:
    """Return a table for each policy, with the metrics that are computed with its thresholds."""
    by_policy: dict[str, list[Metric]] = {}
    for metric in list_policy_metrics(table):
        by_policy.setdefault(metric.policy, []).append(metric)
    return {policy: _render_policy_table(table, policy, metrics) for policy, metrics in by_policy.items()}


def _render_policy_table(table: Table, policy: str, metrics: Sequence[Metric]) -> TextTable:
    columns = [_build_metric_column(metric) for metric in metrics]
    return TextTable(
        columns=(_NAME, *(replace(column, title=column.title.removesuffix(f", {policy}")) for column in columns)),
        rows=tuple(
            (TextCell(text=entry.baseline), *(_render_value(entry, metric) for metric in metrics))
            for entry in table.entries
        ),
        kinds=tuple(entry.kind for entry in table.entries),
    )


def render_failures(failures: Iterable[Failure]) -> TextTable:
    """Return missing answers as text."""
    titles = ("baseline", "episode", "task", "protocol", "seed", "status", "reason")
    return TextTable.of(titles, [[str(getattr(failure, title)) for title in titles] for failure in failures])


def count_unnoticed(counts: Mapping[str, int]) -> str:
    """Return as text how many faults clients did not notice, and how many have an unknown verdict."""
    names = {"unnoticed": "unnoticed by clients (latent or silent)", "unknown": "of unknown verdict"}
    return "".join(f"{counts[verdict]} {name}, " for verdict, name in names.items() if counts.get(verdict))
