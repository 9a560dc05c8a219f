"""The HTML report."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultset.core.files import replace_text
from faultset.evaluators.leaderboards import formats, number_formats
from faultset.evaluators.leaderboards.agents import build_agent_tables
from faultset.evaluators.leaderboards.records import ALL_APPS, GIVEN_ALARMS, HEADLINE, TELEMETRY, Leaderboard, Table
from faultset.evaluators.leaderboards.rendering import (
    choose_columns,
    count_unnoticed,
    list_policy_metrics,
    policy_tables,
    render_failures,
    render_table,
)
from faultset.evaluators.leaderboards.scores import EpisodeScores, score_episodes
from faultset.evaluators.recordings.results import RecordingResults
from faultset.evaluators.reports import episode_difficulty
from faultset.evaluators.reports.figures import delay_charts, forest_plots, scatter_plots
from faultset.evaluators.reports.figures.heat_maps import heat_maps
from faultset.evaluators.reports.figures.recording_timelines import EXPLORER_FILE, build_timelines
from faultset.evaluators.reports.method_cards import NEEDS, cards, top_methods
from faultset.evaluators.reports.provenance import FILES, provenance
from faultset.evaluators.reports.templates import fill_template
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.scoring.thresholds import ThresholdPolicy

if TYPE_CHECKING:
    from faultset.baselines.api.registry import BaselineSpec

FAILURES_SHOWN = 200
MAX_UNSOLVED = 12
_TITLES = {"detection": "Detection", "localization": "Localization", "rca": "Root cause"}
_FOREST = {
    "detection": ("timed_balanced_accuracy", "vus_pr"),
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
    recordings: RecordingResults | None = None,
    now: datetime | None = None,
) -> None:
    """Write the report as a single page without scripts, fonts or network access.

    Parameters
    ----------
    rows
        All answers.
    dataset
        Dataset folder, for the command that opens its episodes in the explorer; None if it is not local.
    policies
        Threshold policies of the leaderboard.
    recordings
        Answers of detectors on recordings.
    now
        Time stamp of the page; the current time by default.
    """
    results = path.parent
    page = render(board, rows, specs, dataset, policies=policies, recordings=recordings, now=now, results=results)
    replace_text(path, page, durable=False)


def render(
    board: Leaderboard,
    rows: Sequence[ResultRow],
    specs: Sequence[BaselineSpec],
    dataset: Path | None,
    *,
    policies: Sequence[ThresholdPolicy] = (),
    recordings: RecordingResults | None = None,
    now: datetime | None = None,
    results: Path = Path("RESULTS"),
) -> str:
    """Return the report as HTML; `results` is the folder that it will be in."""
    scores = score_episodes(rows, policies)
    order = episode_difficulty.episode_difficulties(board, scores)
    unsolved, headline = episode_difficulty.count_unsolved(order, scores)
    several = any(table.app == ALL_APPS for table in board.episode_tables)
    others = [table for table in board.tables if table.verdict != HEADLINE and (not several or table.app == ALL_APPS)]
    strata = top_methods(_sort_by_hard_episodes(board), scores.kinds)
    return fill_template(
        "report.html.j2",
        board=board,
        summary_lines=formats.summary_lines(board),
        summary=_build_summary(board),
        tiles=_build_tiles(board, rows, recordings, unsolved, headline),
        recordings=None if recordings is None else _build_recordings(board, recordings, results),
        sections=[_build_section(board, scores, task) for task in _TITLES if _list_tables(board, task)],
        others=[(table, render_table(table, costs=True)) for table in others],
        more_others=several,
        heat_maps=heat_maps(scores),
        difficulties=(order[:MAX_UNSOLVED], order[MAX_UNSOLVED:]),
        solved_by=[title for _, _, title in episode_difficulty.TASKS],
        explore=_explore_command(dataset, results),
        agent_tables=build_agent_tables(board.agents),
        agent_requests=scatter_plots.summarise_requests(board.agents),
        agent_costs=scatter_plots.agent_cost_plots(board),
        cost_plots=[plot for plot in map(scatter_plots.plot_cost, _list_cost_tables(board)) if plot is not None],
        strata=strata,
        kinds=scores.kinds,
        failures=render_failures(board.failures[:FAILURES_SHOWN]),
        more_failures=max(0, len(board.failures) - FAILURES_SHOWN),
        cards=cards(specs, rows),
        provenance=provenance(board, rows, now or datetime.now(UTC)),
        files=FILES,
    )


def _build_recordings(board: Leaderboard, recordings: RecordingResults, results: Path) -> dict[str, Any]:
    """Return the tables and timelines of recordings."""
    tables = board.recorded_tables
    last = [table for table in tables if table.app == tables[-1].app]
    order = [entry.baseline for table in last for entry in table.entries]
    explore = _explore_command(recordings.location, results)
    return {
        "tables": [
            (
                table,
                render_table(table, [*choose_columns(table), *list_policy_metrics(table)], costs=True),
                [forest_plots.forest(table, name) for name in ("recall", "precision")],
            )
            for table in last
        ],
        "others": [(table, render_table(table)) for table in tables if table not in last],
        "timelines": build_timelines(recordings.runs, order),
        "explore": f"{explore} --out {shlex.quote(str(results / EXPLORER_FILE))}",
    }


def _explore_command(dataset: str | Path | None, results: Path) -> str:
    """Return the command that shows the episodes with the answers of these methods."""
    return shlex.join(["faultset", "dataset", "explore", str(dataset or "DATASET"), "--results", str(results)])


def _list_tables(board: Leaderboard, task: str) -> list[Table]:
    return [table for table in board.episode_tables if table.task == task and table.verdict == HEADLINE]


def _list_series(board: Leaderboard) -> list[list[Table]]:
    """Return lists of headline tables that differ only in the application, all applications together last."""
    series: dict[tuple[str, str, str], list[Table]] = {}
    for task in _TITLES:
        for table in (table for table in _list_tables(board, task) if table.faults == "all"):
            series.setdefault((table.task, table.protocol, table.group), []).append(table)
    return list(series.values())


def _list_cost_tables(board: Leaderboard) -> list[Table]:
    """Return one table per task; its protocol does not matter, because processor times hardly depend on it."""
    last = {series[-1].task: series[-1] for series in reversed(_list_series(board)) if series[-1].group == TELEMETRY}
    return [last[task] for task in _TITLES if task in last]


def _build_summary(board: Leaderboard) -> list[dict[str, Any]]:
    """Return the best methods of every headline table."""
    summaries = []
    for series in _list_series(board):
        last = series[-1]
        if last.group != TELEMETRY:
            continue
        alarm = "" if last.task == "detection" else f", given the {GIVEN_ALARMS[last.protocol]}"
        summaries.append(
            {
                "title": _TITLES[last.task] + alarm,
                "anchor": last.task,
                "forest": forest_plots.forest(last, last.metrics[0].name, methods=5, controls=1),
                "systems": forest_plots.systems(series, methods=5, controls=1) if len(series) > 1 else None,
                "table": last,
            }
        )
    return summaries


def _build_section(board: Leaderboard, scores: EpisodeScores, task: str) -> dict[str, Any]:
    """Return the content of a task: a comparison of systems, each application, all applications."""
    tables = _list_tables(board, task)
    kinds = dict(scores.kinds)
    by_app: dict[str, list[dict[str, Any]]] = {}
    for table in tables:
        by_app.setdefault(table.app, []).append(_build_table_content(table, scores, last=table.app == tables[-1].app))
    return {
        "task": task,
        "title": _TITLES[task],
        "systems": [
            (_describe_input(series[-1]), forest_plots.systems(series))
            for series in _list_series(board)
            if series[-1].task == task and len(series) > 1 and series[-1].group == TELEMETRY
        ],
        "apps": list(by_app.items()),
        "curves": delay_charts.curve_charts([c for c in board.curves if c.task == task and c.group == TELEMETRY]),
        "first_ranks": [
            (GIVEN_ALARMS[protocol], *forest_plots.first_ranks(board.misses, protocol, kinds))
            for protocol in GIVEN_ALARMS
        ]
        if task == "localization" and board.misses
        else [],
    }


def _build_table_content(table: Table, scores: EpisodeScores, *, last: bool) -> dict[str, Any]:
    detection = table.task == "detection" and table.group == TELEMETRY
    # all metrics of all applications would take many megabytes; leaderboard.json has them
    metrics = [m for m in table.metrics if not m.policy] if last and table.faults == "all" else choose_columns(table)
    metrics = [m for m in metrics if any(entry.metrics[m.name].known for entry in table.entries)] or [table.metrics[0]]
    return {
        "table": table,
        "given": _describe_input(table),
        "forests": [
            forest_plots.forest(table, name) for name in (*_FOREST[table.task], *_list_installed_shares(table))
        ],
        "tradeoff": scatter_plots.plot_tradeoff(scores, table) if detection and table.faults == "all" else None,
        "times": delay_charts.times_to_detect(scores, table) if detection and table.faults == "all" else None,
        "text": render_table(table, metrics, costs=True),
        "policies": policy_tables(table),
    }


def _list_installed_shares(table: Table) -> list[str]:
    """Return the names of shares among the headline metrics of installed scorers."""
    return [metric.name for metric in table.metrics if metric.installed and metric.headline and metric.unit == "share"]


def _describe_input(table: Table) -> str:
    text = {"detected": "given the alarm of a detector", "oracle": "given the true onset (oracle)"}[table.protocol]
    parts = [] if table.task == "detection" else [text]
    if table.group != TELEMETRY:
        parts.append(f"methods that see {NEEDS[table.group]}, ranked among themselves")
    return " · ".join(parts)


def _sort_by_hard_episodes(board: Leaderboard) -> list[str]:
    """Return localizers by AC@1 on hard episodes, best first."""
    names = sorted({name for stratum in board.strata for name in stratum.ac1})
    hard = {name: value for s in board.strata if s.name == "hard" for name, value in s.ac1.items()}
    total = {name: sum(s.ac1.get(name, 0.0) * len(s.episodes) for s in board.strata) for name in names}
    return sorted(names, key=lambda name: (-hard.get(name, 0.0), -total[name], name))


def _build_tiles(
    board: Leaderboard,
    rows: Sequence[ResultRow],
    recordings: RecordingResults | None,
    unsolved: int,
    headline: int,
) -> list[dict[str, str]]:
    counts = board.counts
    answers = [*rows, *(() if recordings is None else recordings.rows)]
    methods = {row.baseline: row.kind for row in answers}
    controls = sum(kind == "control" for kind in methods.values())
    times = sorted(row.seconds for row in answers if row.seconds is not None)
    tiles = []
    if recordings is not None:
        tiles.append({"title": "recordings", "value": str(len(recordings.facts)), "text": recordings.counts_text})
    if rows:
        tiles.append(
            {
                "title": "episodes" if recordings is None else "episodes cut out",
                "value": str(sum(counts.values())),
                "text": f"{counts['manifest']} manifest, {counts['latent']} latent, {counts['silent']} silent, "
                f"{count_unnoticed(counts)}{counts['no fault']} without a fault",
            }
        )
    tiles += [
        {
            "title": "methods",
            "value": str(len(methods) - controls),
            "text": f"and {controls} controls",
        },
        {
            "title": "answers",
            "value": f"{len(answers):,}",
            "text": f"{len(board.failures)} failed; "
            + (f"median {number_formats.seconds(times[len(times) // 2])} elapsed" if times else "no times"),
        },
    ]
    if headline:
        tiles.append(
            {
                "title": "unsolved",
                "value": f"{unsolved} of {headline}",
                "text": "headline faults that no method detects or no method locates",
            }
        )
    return tiles
