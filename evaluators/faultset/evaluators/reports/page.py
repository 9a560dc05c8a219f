"""The HTML report."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultset.core.files import replace_text
from faultset.evaluators.leaderboards import formats, number_formats
from faultset.evaluators.leaderboards.agents import agent_grids
from faultset.evaluators.leaderboards.records import ALL_APPS, GIVEN_ALARMS, HEADLINE, Leaderboard, Table
from faultset.evaluators.leaderboards.scores import EpisodeScores, score_episodes
from faultset.evaluators.reports import episode_difficulty
from faultset.evaluators.reports.figures import delay_charts, forest_plots, scatter_plots
from faultset.evaluators.reports.figures.episodes import EPISODES_SHOWN, drawings
from faultset.evaluators.reports.figures.heat_maps import heat_maps
from faultset.evaluators.reports.method_cards import NEEDS, cards, top_methods
from faultset.evaluators.reports.provenance import FILES, provenance
from faultset.evaluators.reports.templates import filled
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.scoring.thresholds import ThresholdPolicy

if TYPE_CHECKING:
    from faultset.baselines.api.registry import BaselineSpec

FAILURES_SHOWN = 200
UNSOLVED_SHOWN = 12
_TITLES = {"detection": "Detection", "localization": "Localization", "rca": "Root cause"}
_FOREST = {
    "detection": ("balanced_accuracy", "event_recall"),
    "localization": ("ac1", "avg5"),
    "rca": ("joint", "parts"),
}


def write_report(
    board: Leaderboard,
    rows: Sequence[ResultRow],
    specs: Sequence[BaselineSpec],
    dataset: Path | None,
    path: Path,
    *,
    policies: Sequence[ThresholdPolicy] = (),
    now: datetime | None = None,
) -> None:
    """Write one page that needs nothing else: no script, no fonts, no network.

    Parameters
    ----------
    rows
        All answers; those about training episodes and later alarms are in the leaderboard already.
    dataset
        Dataset folder, for the telemetry of the episodes that are drawn; None draws them without.
    policies
        Threshold policies of the leaderboard.
    now
        Time stamp of the page; the current time by default.
    """
    replace_text(path, render(board, rows, specs, dataset, policies=policies, now=now), durable=False)


def render(
    board: Leaderboard,
    rows: Sequence[ResultRow],
    specs: Sequence[BaselineSpec],
    dataset: Path | None,
    *,
    policies: Sequence[ThresholdPolicy] = (),
    now: datetime | None = None,
) -> str:
    """Return the report as HTML."""
    scores = score_episodes(rows, policies)
    order = episode_difficulty.episode_difficulties(board, scores)
    unsolved, headline = episode_difficulty.count_unsolved(order, scores)
    others = [table for table in board.tables if table.verdict != HEADLINE]
    several = any(table.app == ALL_APPS for table in board.tables)
    strata = top_methods(_by_hard(board), scores.kinds)
    return filled(
        "report.html.j2",
        board=board,
        summary_lines=formats.summary_lines(board),
        summary=_summary(board),
        tiles=_tiles(board, rows, unsolved, headline),
        sections=[_section(board, scores, task) for task in _TITLES if _tables(board, task)],
        others=[table for table in others if several is False or table.app == ALL_APPS],
        more_others=several,
        columns_of=formats.columns_of,
        heat_maps=heat_maps(scores),
        difficulties=(order[:UNSOLVED_SHOWN], order[UNSOLVED_SHOWN:]),
        solved_by=[title for _, _, title in episode_difficulty.TASKS],
        drawings=drawings(board, scores, order, dataset),
        agent_tables=agent_grids(board.agents),
        agent_looks=scatter_plots.agent_looks(board.agents),
        agent_costs=scatter_plots.agent_cost_plots(board),
        episodes=len(scores.truths),
        most_episodes=EPISODES_SHOWN,
        cost_plots=[plot for plot in map(scatter_plots.cost, _costly(board)) if plot is not None],
        strata=strata,
        kinds=scores.kinds,
        failures=board.failures[:FAILURES_SHOWN],
        more_failures=max(0, len(board.failures) - FAILURES_SHOWN),
        cards=cards(specs, rows),
        provenance=provenance(board, rows, now or datetime.now(UTC)),
        files=FILES,
    )


def _tables(board: Leaderboard, task: str) -> list[Table]:
    return [table for table in board.tables if table.task == task and table.verdict == HEADLINE]


def _series(board: Leaderboard) -> list[list[Table]]:
    """Headline tables that differ in nothing but the application, all applications together last."""
    series: dict[tuple[str, str, str], list[Table]] = {}
    for task in _TITLES:
        for table in _tables(board, task):
            series.setdefault((table.task, table.protocol, table.group), []).append(table)
    return list(series.values())


def _costly(board: Leaderboard) -> list[Table]:
    """One table for each task; processor times differ little between protocols."""
    last = {series[-1].task: series[-1] for series in reversed(_series(board)) if series[-1].group == "telemetry"}
    return [last[task] for task in _TITLES if task in last]


def _summary(board: Leaderboard) -> list[dict[str, Any]]:
    """The best of every headline table: values with intervals, or systems side by side."""
    found = []
    for series in _series(board):
        last = series[-1]
        if last.group != "telemetry":
            continue
        given = "" if last.task == "detection" else f", given the {GIVEN_ALARMS[last.protocol]}"
        found.append(
            {
                "title": _TITLES[last.task] + given,
                "anchor": last.task,
                "forest": forest_plots.forest(last, last.metrics[0].name, methods=5, controls=1),
                "systems": forest_plots.systems(series, methods=5, controls=1) if len(series) > 1 else None,
                "table": last,
            }
        )
    return found


def _section(board: Leaderboard, scores: EpisodeScores, task: str) -> dict[str, Any]:
    """One task: systems side by side, then each application, then all together."""
    tables = _tables(board, task)
    kinds = dict(scores.kinds)
    by_app: dict[str, list[dict[str, Any]]] = {}
    for table in tables:
        by_app.setdefault(table.app, []).append(_part(table, scores, last=table.app == tables[-1].app))
    return {
        "task": task,
        "title": _TITLES[task],
        "systems": [
            (_given(series[-1]), forest_plots.systems(series))
            for series in _series(board)
            if series[-1].task == task and len(series) > 1 and series[-1].group == "telemetry"
        ],
        "apps": list(by_app.items()),
        "curves": delay_charts.curve_charts([curve for curve in board.curves if curve.task == task]),
        "first_places": [
            (GIVEN_ALARMS[protocol], *forest_plots.first_places(board.misses, protocol, kinds))
            for protocol in GIVEN_ALARMS
        ]
        if task == "localization" and board.misses
        else [],
    }


def _part(table: Table, scores: EpisodeScores, *, last: bool) -> dict[str, Any]:
    detection = table.task == "detection" and table.group == "telemetry"
    # every number of every application would make a page of many megabytes; leaderboard.json has them
    shown = [m for m in table.metrics if "[" not in m.name] if last else formats.columns_of(table)
    known = [m for m in shown if any(entry.metrics[m.name].known for entry in table.entries)]
    return {
        "table": table,
        "given": _given(table),
        "forests": [forest_plots.forest(table, name) for name in (*_FOREST[table.task], *_own_shares(table))],
        "tradeoff": scatter_plots.tradeoff(scores, table) if detection else None,
        "times": delay_charts.times_to_detect(scores, table) if detection else None,
        "metrics": known,
        "policies": formats.policy_columns(table),
    }


def _own_shares(table: Table) -> list[str]:
    """Name the shares among the headline metrics that scorers add."""
    return [metric.name for metric in table.metrics if metric.installed and metric.headline and metric.unit == "share"]


def _given(table: Table) -> str:
    text = {"detected": "given the alarm of a detector", "oracle": "given the true onset (oracle)"}[table.protocol]
    parts = [] if table.task == "detection" else [text]
    if table.group != "telemetry":
        parts.append(f"methods that see {NEEDS[table.group]}, ranked among themselves")
    return " · ".join(parts)


def _by_hard(board: Leaderboard) -> list[str]:
    """Localizers, those that do best on hard episodes first."""
    names = sorted({name for stratum in board.strata for name in stratum.ac1})
    hard = {name: value for s in board.strata if s.name == "hard" for name, value in s.ac1.items()}
    total = {name: sum(s.ac1.get(name, 0.0) * len(s.episodes) for s in board.strata) for name in names}
    return sorted(names, key=lambda name: (-hard.get(name, 0.0), -total[name], name))


def _tiles(board: Leaderboard, rows: Sequence[ResultRow], unsolved: int, headline: int) -> list[dict[str, str]]:
    counts = board.counts
    unknown = f"{counts['unknown']} of unknown verdict, " if counts.get("unknown") else ""
    methods = {row.baseline: row.kind for row in rows}
    controls = sum(kind == "control" for kind in methods.values())
    times = sorted(row.seconds for row in rows if row.seconds is not None)
    tiles = [
        {
            "title": "episodes",
            "value": str(sum(counts.values())),
            "text": f"{counts['manifest']} manifest, {counts['latent']} latent, {counts['silent']} silent, "
            f"{formats.unfelt(counts)}{unknown}{counts['no fault']} without a fault",
        },
        {
            "title": "methods",
            "value": str(len(methods) - controls),
            "text": f"and {controls} controls that every number is read against",
        },
        {
            "title": "answers",
            "value": f"{len(rows):,}",
            "text": f"{len(board.failures)} failed; "
            + (f"median {number_formats.seconds(times[len(times) // 2])} elapsed" if times else "no times"),
        },
    ]
    if headline:
        tiles.append(
            {
                "title": "unsolved",
                "value": f"{unsolved} of {headline}",
                "text": "headline faults that no method detects, or that none locates",
            }
        )
    return tiles
