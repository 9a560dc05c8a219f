"""A leaderboard as JSON, as Markdown, as a data frame and on the terminal."""

from __future__ import annotations

import dataclasses
import html
import io
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultset.core.files import replace_text
from faultset.core.printable import count_text, printable, with_texts
from faultset.evaluators.leaderboards.agents import build_agent_tables, markdown_lines
from faultset.evaluators.leaderboards.records import (
    ALL_APPS,
    GIVEN_ALARMS,
    HEADLINE,
    TELEMETRY,
    Entry,
    Failure,
    Leaderboard,
    Table,
)
from faultset.evaluators.leaderboards.rendering import (
    choose_columns,
    count_unnoticed,
    policy_tables,
    render_failures,
    render_table,
)
from faultset.evaluators.leaderboards.texts import NONE, TextTable, format_interval, format_number
from faultset.evaluators.results.rows import CANNOT, NO_FAILURES, TASKS
from faultset.evaluators.scoring.alarms import GAP_S
from faultset.evaluators.scoring.metrics import BUDGETS_S, Metric

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console


RULES = {"reference": "reference (each detector sets its own on the episode's reference window)"}
"""Explanations of threshold policies."""
LEADERBOARD_VERSION = 1


def markdown_text(text: str) -> str:
    """Escape Markdown's table separator and HTML."""
    return html.escape(printable(text), quote=False).replace("|", "\\|")


def write_json(board: Leaderboard, path: Path) -> None:
    """Write all numbers; unknown values are null with a reason."""
    content = {"leaderboard_version": LEADERBOARD_VERSION, **to_json(board)}
    replace_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n", durable=False)


def to_json(value: Any) -> Any:
    """Convert records to plain values: NaN becomes null, infinities become strings."""
    if isinstance(value, Metric):
        return {name: getattr(value, name) for name in ("name", "title", "unit", "better", "meaning")}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
    return value


def write_markdown(board: Leaderboard, path: Path) -> None:
    replace_text(path, markdown(board), durable=False)


def markdown(board: Leaderboard) -> str:
    board = with_texts(board, markdown_text, keep=(Metric,))
    lines = [f"# {board.dataset} {board.version}", "", *(f"- {line}" for line in summary_lines(board)), ""]
    for table in board.tables:
        lines += _format_table(table)
    lines += [*markdown_lines(board.agents), *_format_curves(board), *_format_misses(board), *_format_strata(board)]
    failures = render_failures(board.failures).markdown() if board.failures else ["None."]
    lines += ["## Failed rows", "", *failures, "", "## How to read this", ""]
    lines += [f"- **{metric.title}**: {metric.meaning}." for metric in _list_shown_metrics(board)]
    lines += [
        "- Brackets are 95 % intervals over clusters (application, fault, target).",
        "- **cannot**: missing answers for episodes that lack the tables that the method reads, or all data in the "
        "reference. They count as misses, but not as failures.",
        "- **vs**: difference from the strongest control in the ranking metric on the same episodes. p is from a "
        "paired test over clusters, Holm-corrected over the methods of the table. It is missing if there are too "
        "few clusters. A method beats the control if p is below 0.05.",
        "- **reconstruction**: the paper leaves parts of the method undefined. A range is the lowest and highest "
        "value over settings that were declared before the test; the table shows the value of the default.",
        "- A *gray* fault leaves all pods of its target running and reachable. A *loud* one replaces, stops, restarts "
        "or cuts off pods.",
        "",
    ]
    return "\n".join(lines)


def summary_lines(board: Leaderboard) -> list[str]:
    """Return what was evaluated and how, one sentence each."""
    sentences = [
        *head_lines(board),
        f"alarms: runs of flags less than {GAP_S} s apart are one alarm; an alarm is true if it begins in a fault "
        f"[gap={GAP_S}s,grace=0s]",
        f"thresholds: {RULES.get(board.threshold_rule, board.threshold_rule)}"
        + "".join(f"; {policy} in separate tables" for policy in board.other_rules),
        f"code {board.code}",
    ]
    if not any(curve.over == "evidence" for curve in board.curves):
        budgets = ",".join(map(str, BUDGETS_S))
        sentences.append(
            f"evidence: methods saw the whole view; rankings may differ with less, see --evidence {budgets}"
        )
    if "reused_fits" in board.settings:
        sentences.append(f"reused fits of earlier evaluations: {board.settings['reused_fits']}")
    sentences += [f"not scored: {count} fault episodes ({reason})" for reason, count in board.unscored.items()]
    if board.several_causes:
        sentences.append(
            f"episodes with several root causes: {board.several_causes}; AC@k is the number of causes among "
            "the first k, divided by min(k, causes); hit@k accepts any cause, and joint the level and type of any "
            "fault; exact set, set F1, Jaccard, exact diagnosis and diagnosis F1 require all of them"
        )
    return sentences


QUICK_REMARK = (
    "**quick**: some or all episodes have quick phases; these numbers show that everything works, but they do not rank "
    "methods"
)


def head_lines(board: Leaderboard) -> list[str]:
    """Return the sentences above every leaderboard."""
    counts = board.counts
    sentences = []
    if board.quick:
        sentences.append(QUICK_REMARK)
    recorded = board.settings.get("recordings")
    identity = f"{board.dataset} {board.version} (sha256 {board.digest[:12] or 'unknown'})"
    if recorded:
        sentences.append(f"recordings: {recorded}")
        if not board.episode_tables:
            return [f"input: {identity}", *sentences, "missing answers count as no alarm"]
    sentences += [
        f"input: {identity}{_describe_imported_files(board)}, split {board.split}; "
        f"methods see {_format_range_s(board.reference_s)} of reference"
        + ("" if math.isnan(board.seen_s[0]) else f" and {_format_range_s(board.seen_s)} of each fault"),
        f"episodes{' cut out of them' if recorded else ''}: {counts['manifest']} manifest, {counts['latent']} latent, "
        f"{counts['silent']} silent, "
        f"{count_unnoticed(counts)}{counts['no fault']} without a fault; headlines count manifest episodes"
        + (" and episodes without a verdict" if counts.get("unknown") else "")
        + (f"; {unlabelled} without a label left out" if (unlabelled := board.settings.get("unlabelled")) else ""),
        "missing answers count as wrong; columns named answered leave them out",
    ]
    if board.early_alarms:
        alarms = ", ".join(f"{n} {when}" for when, n in sorted(board.early_alarms.items()))
        sentences.append(
            f"alarms passed to localizers (detected): {alarms}; "
            f"raised by {board.settings.get('alarm_detector', 'the detectors that the answers name')}"
        )
    sentences += [f"data: {message}" for message in board.settings.get("reference_gaps", ())]
    return [*sentences, *(f"agents: {message}" for message in board.settings.get("agents_left_out", ()))]


def _describe_imported_files(board: Leaderboard) -> str:
    files = board.settings.get("imported_files", {})
    return ", imported from " + ", ".join(f"{name} ({count})" for name, count in sorted(files.items())) if files else ""


def _format_range_s(span: tuple[float, float]) -> str:
    """Format the shortest and the longest duration."""
    low, high = (f"{seconds:.0f}" for seconds in span)
    return f"{low} s" if low == high else f"{low} to {high} s"


def _format_curves(board: Leaderboard) -> list[str]:
    """Return a table for each kind of curve, without methods that are ranked separately."""
    lines: list[str] = []
    shown = [curve for curve in board.curves if curve.group == TELEMETRY]
    for title, origin in dict.fromkeys((curve.title, curve.since) for curve in shown):
        curves = [curve for curve in shown if (curve.title, curve.since) == (title, origin)]
        seconds = sorted({point.at_s for curve in curves for point in curve.points})
        lines += [f"## {title}", "", f"Seconds after {origin}; in brackets the number of episodes.", ""]
        rows = []
        for curve in curves:
            cells = {point.at_s: f"{point.right.value:.2f} ({point.right.n})" for point in curve.points}
            rows.append([curve.app, curve.baseline, *(cells.get(second, NONE) for second in seconds)])
        titles = ["app", "baseline", *(f"{second:g} s" for second in seconds)]
        lines += [*TextTable.of(titles, rows).markdown(), ""]
    return lines


def _format_misses(board: Leaderboard) -> list[str]:
    if not board.misses:
        return []
    titles = ("input", "baseline", "episodes", "cause", "symptom", "unrelated", "no answer", "calls away")
    rows = [
        [
            GIVEN_ALARMS[miss.protocol],
            miss.baseline,
            str(miss.episodes),
            *(f"{value:.2f}" for value in (miss.hit, miss.symptom, miss.unrelated, miss.none)),
            ", ".join(f"{distance}: {count}" for distance, count in miss.hops.items()),
        ]
        for miss in board.misses
    ]
    return ["## What localizers rank first", "", *TextTable.of(titles, rows).markdown(), ""]


def _format_means_over_applications(table: Table) -> list[str]:
    metric = table.metrics[0]
    lines = []
    for entry in table.entries:
        if entry.across is not None and entry.across.known:
            value = format_number(entry.across.value, metric)
            lines.append(
                f"- {entry.baseline}: {value} " + (format_interval(entry.across, metric) or f"({entry.across.reason})")
            )
    title = f"Mean of {metric.title} over applications, with the prediction interval for one more application:"
    return [title, "", *lines, ""] if lines else []


def _format_table(table: Table) -> list[str]:
    lines = [f"## {table.title}", "", f"{table.header}.", ""]
    lines += [line for text in (table.target_text, table.note) if text for line in (text, "")]
    lines += [*render_table(table).markdown(), ""]
    lines += [f"**{table.standing}.**", ""] if table.standing else []
    for policy, text_table in policy_tables(table).items():
        lines += [f"### Threshold policy {policy}, {table.title}", "", *text_table.markdown(), ""]
    return [*lines, *_format_means_over_applications(table)]


def _format_strata(board: Leaderboard) -> list[str]:
    if not board.strata:
        return []
    rows = [[stratum.name, str(len(stratum.episodes)), stratum.meaning] for stratum in board.strata]
    table = TextTable.of(("stratum", "episodes", "meaning"), rows)
    return [f"## Difficulty of the {HEADLINE} episodes", "", *table.markdown(), ""]


def _list_shown_metrics(board: Leaderboard) -> list[Metric]:
    metrics: dict[str, Metric] = {}
    for table in board.tables:
        metrics |= {metric.name: metric for metric in choose_columns(table)}
    return list(metrics.values())


KEYS = (
    "task", "protocol", "app", "verdict", "faults", "group", "threshold_rule", "rank", "baseline", "kind",
    "reconstruction",
)  # fmt: skip
"""First columns of the frame."""
COSTS = (
    "settings_low", "settings_high", "failed", "cannot", "cpu_s", "episodes", "control", "vs_control", "vs_control_low",
    "vs_control_high", "p", "beats_control",
)  # fmt: skip
"""Last columns of the frame."""


def leaderboard_frame(tables: Iterable[Table], *, intervals: bool = False) -> pd.DataFrame:
    """Return one row per method and table, with the columns `KEYS`, metrics and `COSTS`."""
    import pandas as pd

    lines: list[dict[str, Any]] = []
    metrics: dict[str, None] = {}
    for table in tables:
        for entry in table.entries:
            line: dict[str, Any] = {
                "task": table.task,
                "protocol": table.protocol,
                "app": table.app,
                "verdict": table.verdict,
                "faults": table.faults,
                "group": table.group,
                "threshold_rule": table.threshold_rule,
                "rank": entry.rank,
                "baseline": entry.baseline,
                "kind": entry.kind,
                "reconstruction": entry.reconstruction,
                "failed": sum(n for status, n in entry.failed.items() if status not in NO_FAILURES),
                "cannot": entry.failed.get(CANNOT, 0),
                "cpu_s": entry.seconds,
                "episodes": table.episodes,
                "control": table.strongest_control,
                "p": entry.adjusted_p,
                "beats_control": entry.beats_control,
            }
            if entry.settings_range is not None:
                line |= {"settings_low": entry.settings_range.low, "settings_high": entry.settings_range.high}
            if entry.against is not None:
                difference = entry.against.difference
                line |= {"vs_control": difference.value}
                line |= {"vs_control_low": difference.low, "vs_control_high": difference.high}
            for metric in table.metrics:
                estimate = entry.metrics[metric.name]
                line[metric.name] = estimate.value
                metrics[metric.name] = None
                if intervals:
                    line[f"{metric.name}_low"], line[f"{metric.name}_high"] = estimate.low, estimate.high
                    metrics |= {f"{metric.name}_low": None, f"{metric.name}_high": None}
            lines.append(line)
    return pd.DataFrame(lines, columns=[*KEYS, *metrics, *COSTS])


_MAX_AGENT_COLUMNS = 8
"""Maximum number of columns of agents; leaderboard.md has all."""
_ROWS = ((120, 7), (100, 5), (0, 4))
"""Minimum width of a terminal -> maximum number of lines of a table; sentences take more lines if it is narrow."""
_MAX_FAILURES = 3
"""Maximum number of failures that are named."""
_USER_KINDS = ("external", "agent")


def show_leaderboard(board: Leaderboard, console: Console) -> None:
    """Print a table for each task, over all applications, with the context to read it."""
    board = with_texts(board, printable, keep=(Metric,))
    for line in head_lines(board):
        console.print(line.replace("**", ""), style="yellow" if line is QUICK_REMARK else "dim", markup=False)
    shown = [
        _find_first_table(board.recorded_tables, "detection"),
        *(_find_first_table(board.episode_tables, t) for t in TASKS),
    ]
    shown = [table for table in shown if table is not None]
    hidden: set[str] = set()
    for table in shown:
        hidden |= _show_table(table, board, console)
    others = len(board.tables) - len(shown)
    more = [count_text(len(hidden), "more column")] if hidden else []
    more += (
        [f"{count_text(others, 'more table')} (by application, verdict, faults and input of methods)"] if others else []
    )
    console.print(f"leaderboard.md has {', '.join(['all methods', *more])}.", style="dim", markup=False)
    for agents in build_agent_tables(board.agents):
        console.print()
        fitting = agents.select(range(min(_MAX_AGENT_COLUMNS, len(agents.columns))))
        console.print(replace(fitting, title=f"agents · {agents.title}").rich())
    if board.failures:
        console.print(_describe_failures(board.failures), style="red", markup=False)


def _show_table(table: Table, board: Leaderboard, console: Console) -> set[str]:
    """Print a table; return the titles of the metrics that did not fit."""
    entries = _choose_entries(table, next(rows for width, rows in _ROWS if console.width >= width))
    metrics = choose_columns(table)
    text = render_table(replace(table, entries=tuple(entries)), metrics, kinds=False).fit(console.width)
    suffix = (
        f", the first {len(entries)} of {count_text(len(table.entries), 'method')}"
        if len(entries) < len(table.entries)
        else ""
    )
    console.print()
    console.print(table.title, style="bold", markup=False)
    console.print(f"{table.header}{suffix}", style="dim", markup=False)
    console.print(text.rich())
    closing = [f"{table.standing}." if table.standing else "", table.note]
    console.print(" ".join(filter(None, closing)), style="bold", markup=False)
    for line in filter(None, (_describe_reconstructions(entries), _compare_loudness(table, board))):
        console.print(line, style="dim", markup=False)
    return {metric.title for metric in metrics} - {column.title for column in text.columns}


def _describe_reconstructions(entries: Iterable[Entry]) -> str:
    """Name the reconstructed methods, with their ranges over declared settings."""
    names = [
        f"{entry.baseline} ({entry.range_text})" if entry.settings_range else entry.baseline
        for entry in entries
        if entry.reconstruction or entry.settings_range
    ]
    return f"reconstructions: {', '.join(names)}" if names else ""


def _compare_loudness(table: Table, board: Leaderboard) -> str:
    """Return the best method and the strongest control on gray and on loud faults."""
    parts = []
    for faults in ("gray", "loud"):
        other = next((other for other in board.tables if other.key == (*table.key[:-1], faults)), None)
        if other is not None:
            metric = other.metrics[0]
            scored = [entry for entry in other.entries if entry.metrics[metric.name].known]
            best = [entry for entry in scored if entry.kind != "control"][:1]
            control = [entry for entry in scored if entry.baseline == other.strongest_control]
            values = [
                f"{entry.baseline} {format_number(entry.metrics[metric.name].value, metric)}"
                for entry in (*best, *control)
            ]
            if not values:
                continue
            parts.append(f"{count_text(other.episodes, f'{faults} fault')}: {', control '.join(values)}")
    return "; ".join(parts)


def render_text(board: Leaderboard, width: int) -> str:
    """Return the output of `show_leaderboard` as plain text."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, highlight=False, color_system=None)
    show_leaderboard(board, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().rstrip("\n")


def _find_first_table(tables: Sequence[Table], task: str) -> Table | None:
    """Return the most important table of a task; among equals, the table with most of the user's methods."""

    def order(table: Table) -> tuple[bool, bool, bool, int, bool]:
        user_methods = sum(entry.kind in _USER_KINDS for entry in table.entries)
        return (
            table.verdict != HEADLINE,
            table.faults != "all",
            table.app != ALL_APPS,
            -user_methods,
            table.group != TELEMETRY,
        )

    return min((table for table in tables if table.task == task), key=order, default=None)


def _choose_entries(table: Table, rows: int) -> list[Entry]:
    """Return the first rows of a table, including the user's methods and the strongest control."""
    first = sorted(
        table.entries, key=lambda entry: (entry.baseline != table.strongest_control, entry.kind not in _USER_KINDS)
    )[: rows - bool(table.floor)]
    return [entry for entry in table.entries if entry in first]


def _describe_failures(failures: Sequence[Failure]) -> str:
    counts = Counter((failure.baseline, failure.status) for failure in failures)
    names = [f"{name}: {n} {status}" for (name, status), n in sorted(counts.items())[:_MAX_FAILURES]]
    more = [f"{len(counts) - _MAX_FAILURES} more"] if len(counts) > _MAX_FAILURES else []
    return f"{count_text(len(failures), 'failed row')} counted as misses ({', '.join([*names, *more])})"
