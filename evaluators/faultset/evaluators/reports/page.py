"""The HTML report."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultset.evaluators.execution.plan import inputs_beyond_telemetry
from faultset.evaluators.leaderboards import formats
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
from faultset.evaluators.leaderboards.scores import EpisodeScores, kind_rank, score_episodes
from faultset.evaluators.leaderboards.texts import format_mebibytes, format_seconds
from faultset.evaluators.recordings.online_detection import RecordingResults
from faultset.evaluators.reports import charts, episodes, scatter_plots
from faultset.evaluators.reports.charts import Content, top_methods
from faultset.evaluators.reports.episodes import EXPLORER_FILE, build_timelines, heat_maps
from faultset.evaluators.results.provenance import machine
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.scoring.intervals import median_or_nan
from faultset.evaluators.scoring.thresholds import ThresholdPolicy

if TYPE_CHECKING:
    from jinja2 import Environment

    from faultset.baselines.registry import BaselineSpec


def fill_template(name: str, **content: Any) -> str:
    """Fill a template; all content is escaped."""
    return _build_environment().get_template(name).render(css=_read_text("page.css"), **content)


@cache
def _build_environment() -> Environment:
    """Return the environment of the process, which compiles each template once."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    return Environment(
        loader=FunctionLoader(_read_text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )


def _read_text(name: str) -> str:
    return (resources.files("faultset.evaluators.reports") / name).read_text(encoding="utf-8")


NEEDS = {
    "onset": "the true onset",
    "sli": "the clients' requests",
    "alarm_location": "the location of the alarm",
    "labels": "labels of training episodes",
    "references": "healthy references of training episodes with a fault",
    "threshold": "a threshold from other training episodes",
}

TASKS = {"detection": "Detection", "localization": "Localization", "rca": "Root cause"}


def cards(specs: Sequence[BaselineSpec], rows: Sequence[ResultRow]) -> list[tuple[str, list[Content]]]:
    """Return facts about the methods by task, controls last."""
    by_method: dict[str, list[ResultRow]] = {}
    for row in rows:
        by_method.setdefault(row.baseline, []).append(row)
    chosen = [spec for spec in specs if spec.name in by_method]
    chosen.sort(key=lambda spec: (kind_rank(spec.kind), spec.name))
    by_task = [
        (title, [_build_card(spec, by_method[spec.name]) for spec in chosen if spec.task == task])
        for task, title in TASKS.items()
    ]
    return [(title, task_cards) for title, task_cards in by_task if task_cards]


def _build_card(spec: BaselineSpec, rows: Sequence[ResultRow]) -> Content:
    needs = [NEEDS.get(need, need) for need in inputs_beyond_telemetry(spec)]
    return {
        "spec": spec,
        "reads": ", ".join(spec.tables) or "nothing",
        "needs": ", ".join(needs) or "nothing beyond telemetry",
        "seen": "not declared" if spec.developed_on is None else "; ".join(spec.developed_on) or "nothing",
        "seconds": format_seconds(median_or_nan([row.cpu_seconds for row in rows])),
        "fit_seconds": format_seconds(median_or_nan([row.fit_seconds for row in rows])),
        "memory": format_mebibytes(median_or_nan([row.peak_bytes for row in rows])),
    }


FILES = (
    ("results.parquet", "a row for every answer, with the raw answer and the truth"),
    ("leaderboard.json", "all numbers of this page with their intervals, or the reasons why they are missing"),
    ("leaderboard.md", "the tables as text"),
)


def provenance(board: Leaderboard, rows: Sequence[ResultRow], now: datetime) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return groups of names and values: data, run, code, machine."""
    settings = dict(board.settings)
    stored = settings.pop("machine", None)
    data = [
        ("dataset", board.dataset),
        ("version", board.version),
        ("sha256 of the version", board.digest or "unknown"),
        ("split", board.split),
        ("phase lengths", ", ".join(f"{n} {name}" for name, n in sorted(board.profiles.items()))),
        ("read from", str(settings.pop("source", "unknown"))),
    ]
    others = [(name, code) for name, code in board.method_codes.items() if code and not code.startswith("faultset ")]
    code = [("faultset", board.code), *others, *sorted(board.libraries.items())]
    run = [
        ("seeds", ", ".join(map(str, sorted({row.seed for row in rows})))),
        ("page written", now.strftime("%Y-%m-%d %H:%M UTC")),
        *((name.replace("_", " "), _format_value(settings[name])) for name in sorted(settings) if name != "split"),
    ]
    hardware = dict(stored) if isinstance(stored, Mapping) else machine()
    return [("Data", data), ("Run", run), ("Code", code), ("Machine", list(hardware.items()))]


def _format_value(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


FAILURES_SHOWN = 200
MAX_UNSOLVED = 12
_FOREST_METRICS = {
    "detection": ("timed_balanced_accuracy", "vus_pr"),
    "localization": ("ac1", "avg5"),
    "rca": ("joint", "parts"),
}


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
    order = episodes.episode_difficulties(board, scores)
    headline = [episode for episode in order if episode["headline"]]
    has_several_apps = any(table.app == ALL_APPS for table in board.episode_tables)
    others = [
        table for table in board.tables if table.verdict != HEADLINE and (not has_several_apps or table.app == ALL_APPS)
    ]
    strata = top_methods(_sort_by_hard_episodes(board), scores.kinds)
    return fill_template(
        "report.html.j2",
        board=board,
        summary_lines=formats.summary_lines(board),
        summary=_build_summary(board),
        tiles=_build_tiles(board, rows, recordings, headline),
        recordings=None if recordings is None else _build_recordings(board, recordings, results),
        sections=[_build_section(board, scores, task) for task in TASKS if _list_tables(board, task)],
        others=[(table, render_table(table, costs=True)) for table in others],
        more_others=has_several_apps,
        heat_maps=heat_maps(scores),
        difficulties=(order[:MAX_UNSOLVED], order[MAX_UNSOLVED:]),
        solved_by=[title for _, _, title in episodes.SOLVED_TASKS],
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


def _build_recordings(board: Leaderboard, recordings: RecordingResults, results: Path) -> Content:
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
                [charts.forest(table, name) for name in ("recall", "precision")],
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
    for task in TASKS:
        for table in (table for table in _list_tables(board, task) if table.faults == "all"):
            series.setdefault((table.task, table.protocol, table.group), []).append(table)
    return list(series.values())


def _list_cost_tables(board: Leaderboard) -> list[Table]:
    """Return one table per task; its protocol does not matter, because processor times hardly depend on it."""
    last = {series[-1].task: series[-1] for series in reversed(_list_series(board)) if series[-1].group == TELEMETRY}
    return [last[task] for task in TASKS if task in last]


def _build_summary(board: Leaderboard) -> list[Content]:
    """Return the best methods of every headline table."""
    summaries = []
    for series in _list_series(board):
        last = series[-1]
        if last.group != TELEMETRY:
            continue
        alarm = "" if last.task == "detection" else f", given the {GIVEN_ALARMS[last.protocol]}"
        summaries.append(
            {
                "title": TASKS[last.task] + alarm,
                "anchor": last.task,
                "forest": charts.forest(last, last.metrics[0].name, methods=5, controls=1),
                "systems": charts.systems(series, methods=5, controls=1) if len(series) > 1 else None,
                "table": last,
            }
        )
    return summaries


def _build_section(board: Leaderboard, scores: EpisodeScores, task: str) -> Content:
    """Return the content of a task: a comparison of systems, each application, all applications."""
    tables = _list_tables(board, task)
    by_app: dict[str, list[Content]] = {}
    for table in tables:
        by_app.setdefault(table.app, []).append(_build_table_content(table, scores, last=table.app == tables[-1].app))
    return {
        "task": task,
        "title": TASKS[task],
        "systems": [
            (_describe_input(series[-1]), charts.systems(series))
            for series in _list_series(board)
            if series[-1].task == task and len(series) > 1 and series[-1].group == TELEMETRY
        ],
        "apps": list(by_app.items()),
        "curves": charts.curve_charts([c for c in board.curves if c.task == task and c.group == TELEMETRY]),
        "first_ranks": [
            (alarm, charts.first_ranks(board.misses, protocol, scores.kinds))
            for protocol, alarm in GIVEN_ALARMS.items()
        ]
        if task == "localization" and board.misses
        else [],
    }


def _build_table_content(table: Table, scores: EpisodeScores, *, last: bool) -> Content:
    detection = table.task == "detection" and table.group == TELEMETRY
    # all metrics of all applications would take many megabytes; leaderboard.json has them
    metrics = [m for m in table.metrics if not m.policy] if last and table.faults == "all" else choose_columns(table)
    metrics = [m for m in metrics if any(entry.metrics[m.name].known for entry in table.entries)] or [table.metrics[0]]
    installed_shares = [m.name for m in table.metrics if m.installed and m.headline and m.unit == "share"]
    return {
        "table": table,
        "given": _describe_input(table),
        "forests": [charts.forest(table, name) for name in (*_FOREST_METRICS[table.task], *installed_shares)],
        "tradeoff": scatter_plots.plot_tradeoff(scores, table) if detection and table.faults == "all" else None,
        "times": charts.times_to_detect(scores, table) if detection and table.faults == "all" else None,
        "text": render_table(table, metrics, costs=True),
        "policies": policy_tables(table),
    }


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
    board: Leaderboard, rows: Sequence[ResultRow], recordings: RecordingResults | None, headline: Sequence[Content]
) -> list[Content]:
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
        {"title": "methods", "value": str(len(methods) - controls), "text": f"and {controls} controls"},
        {
            "title": "answers",
            "value": f"{len(answers):,}",
            "text": f"{len(board.failures)} failed; "
            + (f"median {format_seconds(times[len(times) // 2])} elapsed" if times else "no times"),
        },
    ]
    if headline:
        tiles.append(
            {
                "title": "unsolved",
                "value": f"{sum(episode['unsolved'] for episode in headline)} of {len(headline)}",
                "text": "headline faults that no method detects or no method locates",
            }
        )
    return tiles
