"""A leaderboard as JSON, as Markdown and as one data frame."""

from __future__ import annotations

import dataclasses
import html
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultset.core.files import replace_text
from faultset.core.printable import printable, with_texts
from faultset.evaluators.leaderboards import number_formats
from faultset.evaluators.leaderboards.agents import markdown_lines
from faultset.evaluators.leaderboards.grids import Grid
from faultset.evaluators.leaderboards.records import GIVEN_ALARMS, HEADLINE, Entry, Leaderboard, Table
from faultset.evaluators.results.rows import CANNOT, NO_FAILURES
from faultset.evaluators.results.truth import UNFELT
from faultset.evaluators.scoring.alarms import GAP_S
from faultset.evaluators.scoring.metrics import Metric

if TYPE_CHECKING:
    import pandas as pd

RULES = {"reference": "reference (each detector sets its own on the episode's reference window)"}
"""Threshold policies whose names need a word."""
LEADERBOARD_VERSION = 5
"""Version 5 added `threshold_rule` of tables, `seen_s` and `reference_s`, and metrics over answered episodes.
Version 4 named the task and the protocol of curves, whose points have `right` in place of `ac1` and `avg5`.
Version 3 renamed the fields of curves, which may be over evidence as well.
Version 2 renamed `place` of an entry to `rank` and the metric `silent_without_fault` to `correct_abstentions`."""


def markdown_text(text: str) -> str:
    """Return a text that is no markup and breaks no table."""
    return html.escape(printable(text), quote=False).replace("|", "\\|")


def write_json(board: Leaderboard, path: Path) -> None:
    """Write everything that was computed; unknown values are null and say why."""
    content = {"leaderboard_version": LEADERBOARD_VERSION, **to_json(board)}
    replace_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n", durable=False)


def to_json(value: Any) -> Any:
    """Turn records into what JSON can hold: NaN becomes null, infinities become strings."""
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


def columns_of(table: Table) -> tuple[Metric, ...]:
    """Return the metrics that a table shows where space is short; JSON has all."""
    first, *rest = (metric for metric in table.metrics if metric.headline)
    return (first, *(metric for metric in table.metrics if _stands_beside(metric, first, table)), *rest)


def _stands_beside(metric: Metric, first: Metric, table: Table) -> bool:
    """Whether a metric is shown beside the first one because of the values in this table."""
    estimates = [(entry.metrics[metric.name], entry.metrics[first.name]) for entry in table.entries]
    if metric.beside_first == "if known":
        return any(estimate.known for estimate, _ in estimates)
    return metric.beside_first == "if it differs" and any(estimate.n != of_first.n for estimate, of_first in estimates)


def policy_columns(table: Table) -> tuple[Metric, ...]:
    """Return the metrics of threshold policies other than `reference`, which have a table of their own."""
    return tuple(metric for metric in table.metrics if "[" in metric.name)


def write_markdown(board: Leaderboard, path: Path) -> None:
    """Write the tables for people who read text."""
    replace_text(path, markdown(board), durable=False)


def markdown(board: Leaderboard) -> str:
    """Render a leaderboard as Markdown."""
    board = with_texts(board, markdown_text, keep=(Metric,))
    lines = [f"# {board.dataset} {board.version}", ""]
    lines += [f"- {line}" for line in summary_lines(board)]
    lines.append("")
    for table in board.tables:
        lines += _table(table)
    lines += markdown_lines(board.agents)
    lines += _curves(board)
    lines += _misses(board)
    lines += _strata(board)
    lines += _failures(board)
    lines += ["## How to read this", ""]
    lines += [f"- **{metric.title}**: {metric.meaning}." for metric in _all_metrics(board)]
    lines += [
        "- Brackets are 95 % intervals from what clusters (application, fault, target) differ by.",
        "- **cannot**: answers that are missing because nothing that the method reads is recorded, or lies in the "
        "reference. They count as misses in every column, and are no failures of the method's code.",
        "- The last column compares with the strongest control on the same episodes, in what the table ranks by; p is "
        "corrected by Holm, and missing where there are too few clusters for any p to be small.",
        "",
    ]
    return "\n".join(lines)


def summary_lines(board: Leaderboard) -> list[str]:
    """Say what was evaluated and what a reader must keep in mind, one sentence each."""
    sentences = [
        *head_lines(board),
        f"alarms: runs of flags less than {GAP_S} s apart are one, and one is true when it begins in a fault "
        f"[gap={GAP_S}s,grace=0s]",
        f"thresholds: {RULES.get(board.threshold_rule, board.threshold_rule)}"
        + "".join(f"; {policy} in columns of its own" for policy in board.other_rules),
        f"code {board.code}",
    ]
    if "fits_used_again" in board.settings:
        sentences.append(f"fits of earlier evaluations used again: {board.settings['fits_used_again']}")
    sentences += [f"agents: {message}" for message in board.settings.get("agents_left_out", ())]
    sentences += [f"not scored: {count} fault episodes ({reason})" for reason, count in board.unscored.items()]
    if board.several_causes:
        sentences.append(
            f"episodes with several root causes: {board.several_causes}; AC@k counts causes among the first k over "
            "min(k, causes), hit@k any of them, and joint the level and type of any; exact set, set F1, Jaccard, "
            "exact diagnosis and diagnosis F1 compare with all of them"
        )
    return sentences


def head_lines(board: Leaderboard) -> list[str]:
    """Say what was scored and how, in the few lines that stand above every leaderboard."""
    counts = board.counts
    sentences = []
    if board.quick:
        sentences.append(
            "**quick**: at least some episodes have quick phases; these numbers show that things work, "
            "they do not rank methods"
        )
    sentences += [
        f"input: {board.dataset} {board.version} (sha256 {board.digest[:12] or 'unknown'}){_imported_files(board)}, "
        f"split {board.split}; "
        f"methods see {_seconds(board.reference_s)} of reference and {_seconds(board.seen_s)} of each fault",
        f"episodes: {counts['manifest']} manifest, {counts['latent']} latent, {counts['silent']} silent, "
        f"{unfelt(counts)}{_unknown(counts)}{counts['no fault']} without a fault; headlines count manifest episodes"
        + (" and those without a verdict" if counts.get("unknown") else ""),
        "missing answers count as wrong; columns named answered leave them out",
    ]
    if board.early_alarms:
        given = ", ".join(f"{n} {when}" for when, n in sorted(board.early_alarms.items()))
        sentences.append(
            f"alarm that localizers were given (detected): {given}; "
            f"raised by {board.settings.get('alarm_detector', 'what the answers name')}"
        )
    return [*sentences, *(f"data: {message}" for message in board.settings.get("reference_gaps", ()))]


def _imported_files(board: Leaderboard) -> str:
    files = board.settings.get("imported_files", {})
    return ", imported from " + ", ".join(f"{name} ({count})" for name, count in sorted(files.items())) if files else ""


def _seconds(span: tuple[float, float]) -> str:
    """Write the shortest and the longest of some durations."""
    low, high = (f"{seconds:.0f}" for seconds in span)
    return f"{low} s" if low == high else f"{low} to {high} s"


def unfelt(counts: Mapping[str, int]) -> str:
    """Count the faults that clients did not feel and of which no more is known, where there are any."""
    return f"{counts[UNFELT]} unfelt (latent or silent is not known), " if counts.get(UNFELT) else ""


def _unknown(counts: Mapping[str, int]) -> str:
    return f"{counts['unknown']} of unknown verdict, " if counts.get("unknown") else ""


def _policies(table: Table) -> list[str]:
    """One table for each policy that sets thresholds on training episodes."""
    shown = policy_columns(table)
    lines = []
    for policy in dict.fromkeys(metric.name.partition("[")[2].removesuffix("]") for metric in shown):
        columns = [metric for metric in shown if metric.name.endswith(f"[{policy}]")]
        names = [metric.title.removesuffix(f", {policy}") for metric in columns]
        lines += [f"### Threshold policy {policy}, {table.title}", ""]
        rows = [[entry.baseline, *(_value(entry, metric) for metric in columns)] for entry in table.entries]
        lines += [*Grid.of(["baseline", *names], rows).markdown(), ""]
    return lines


def _curves(board: Leaderboard) -> list[str]:
    lines: list[str] = []
    for title, since in dict.fromkeys((curve.title, curve.since) for curve in board.curves):
        curves = [curve for curve in board.curves if (curve.title, curve.since) == (title, since)]
        places = sorted({point.at_s for curve in curves for point in curve.points})
        lines += [f"## {title}", "", f"Seconds after {since}; in brackets the episodes.", ""]
        rows = []
        for curve in curves:
            at = {point.at_s: f"{point.right.value:.2f} ({point.right.n})" for point in curve.points}
            rows.append([curve.app, curve.baseline, *(at.get(place, number_formats.NONE) for place in places)])
        lines += [*Grid.of(["app", "baseline", *(f"{place:g} s" for place in places)], rows).markdown(), ""]
    return lines


def _misses(board: Leaderboard) -> list[str]:
    if not board.misses:
        return []
    titles = ("given", "baseline", "episodes", "cause", "symptom", "unrelated", "no answer", "calls away")
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
    return ["## What localizers put first", "", *Grid.of(titles, rows).markdown(), ""]


def _across(table: Table) -> list[str]:
    known = [entry for entry in table.entries if entry.across is not None and entry.across.known]
    if not known:
        return []
    metric = table.metrics[0]
    lines = [f"Mean of {metric.title} over applications, and where it would lie for one more:", ""]
    for entry in known:
        assert entry.across is not None
        value = number_formats.number(entry.across.value, metric)
        doubt = number_formats.interval(entry.across, metric) or f"({entry.across.reason})"
        lines.append(f"- {entry.baseline}: {value} {doubt}")
    return [*lines, ""]


def _table(table: Table) -> list[str]:
    shown = columns_of(table)
    lines = [f"## {table.title}", ""]
    lines += [f"{table.header}.", ""]
    if table.note:
        lines += [table.note, ""]
    against = f"vs {table.strongest_control}" if table.strongest_control else "vs control"
    header = ["#", "baseline", "kind", *(metric.title for metric in shown), "failed", "cannot", "CPU", against]
    rows = [_cells(entry, shown) for entry in table.entries]
    if table.floor:
        rows.append(["", "*guessing*", "floor", *(_floor(table, metric) for metric in shown), "", "", "", ""])
    lines += [*Grid.of(header, rows).markdown(), "", f"**{table.standing}.**", ""]
    return [*lines, *_across(table), *_policies(table)]


def _cells(entry: Entry, shown: tuple[Metric, ...]) -> list[str]:
    failed = ", ".join(f"{n} {status}" for status, n in sorted(entry.failed.items()) if status != CANNOT)
    values = [_value(entry, metric) for metric in shown]
    return [
        str(entry.rank),
        entry.baseline,
        entry.kind + (f" (given {', '.join(entry.given)})" if entry.given else ""),
        *values,
        failed,
        str(entry.failed.get(CANNOT, "")),
        number_formats.seconds(entry.seconds),
        entry.against_text,
    ]


def _value(entry: Entry, metric: Metric) -> str:
    estimate = entry.metrics[metric.name]
    parts = (
        number_formats.value(estimate, metric),
        number_formats.interval(estimate, metric),
        number_formats.counts(estimate, metric) if metric.unit == "share" else "",
    )
    return " ".join(part for part in parts if part)


def _floor(table: Table, metric: Metric) -> str:
    estimate = table.floor.get(metric.name)
    return "" if estimate is None else number_formats.number(estimate.value, metric)


def _strata(board: Leaderboard) -> list[str]:
    if not board.strata:
        return []
    rows = [[stratum.name, str(len(stratum.episodes)), stratum.meaning] for stratum in board.strata]
    grid = Grid.of(("stratum", "episodes", "means"), rows)
    return [f"## Difficulty of the {HEADLINE} episodes", "", *grid.markdown(), ""]


def _failures(board: Leaderboard) -> list[str]:
    lines = ["## Failed rows", ""]
    if not board.failures:
        return [*lines, "None.", ""]
    titles = ("baseline", "episode", "task", "protocol", "seed", "status", "reason")
    rows = [[str(getattr(failure, title)) for title in titles] for failure in board.failures]
    return [*lines, *Grid.of(titles, rows).markdown(), ""]


def _all_metrics(board: Leaderboard) -> list[Metric]:
    seen: dict[str, Metric] = {}
    for table in board.tables:
        seen |= {metric.name: metric for metric in columns_of(table)}
    return list(seen.values())


KEYS = ("task", "protocol", "app", "verdict", "group", "threshold_rule", "rank", "baseline", "kind")
"""First columns of the frame."""
COSTS = ("failed", "cannot", "cpu_s", "episodes", "control", "vs_control", "vs_control_low", "vs_control_high", "p")
"""Last columns of the frame."""


def leaderboard_frame(tables: Iterable[Table], *, intervals: bool = False) -> pd.DataFrame:
    """Return a line for each method in each table: keys, metrics, costs."""
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
                "group": table.group,
                "threshold_rule": table.threshold_rule,
                "rank": entry.rank,
                "baseline": entry.baseline,
                "kind": entry.kind,
                "failed": sum(n for status, n in entry.failed.items() if status not in NO_FAILURES),
                "cannot": entry.failed.get(CANNOT, 0),
                "cpu_s": entry.seconds,
                "episodes": table.episodes,
                "control": table.strongest_control,
                "p": entry.adjusted_p,
            }
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
