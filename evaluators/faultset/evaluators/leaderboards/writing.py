"""A leaderboard as JSON and as Markdown."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from faultset.evaluators.leaderboards import detecting, locating, wording
from faultset.evaluators.leaderboards.records import HEADLINE, Entry, Leaderboard, Metric, Table

LEADERBOARD_VERSION = 1


def write_json(board: Leaderboard, path: Path) -> None:
    """Write everything that was computed; unknown values are null and say why."""
    content = {"leaderboard_version": LEADERBOARD_VERSION, **plain(board)}
    path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def plain(value: Any) -> Any:
    """Turn records into what JSON can hold: NaN becomes null, infinities become strings."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
    return value


def columns_of(table: Table) -> tuple[Metric, ...]:
    """Return the metrics that a table shows where space is short; JSON has all."""
    return detecting.TABLE_COLUMNS if table.task == "detection" else locating.TABLE_COLUMNS


def write_markdown(board: Leaderboard, path: Path) -> None:
    """Write the tables for people who read text."""
    path.write_text(markdown(board), encoding="utf-8")


def markdown(board: Leaderboard) -> str:
    """Render a leaderboard as Markdown."""
    lines = [f"# {board.dataset} {board.version}", ""]
    lines += [f"- {line}" for line in facts(board)]
    lines.append("")
    for table in board.tables:
        lines += _table(table)
    lines += _strata(board)
    lines += _failures(board)
    lines += ["## How to read this", ""]
    lines += [f"- **{metric.title}**: {metric.meaning}." for metric in _all_metrics(board)]
    lines += [
        "- Brackets are 95 % intervals; whole clusters (application, fault, target) are resampled. "
        "A perfect or an empty score gets Wilson's interval with clusters as trials.",
        "- The last column compares with the strongest control on the same episodes; p is corrected by Holm "
        "and missing below six clusters, where nothing can be significant.",
        "",
    ]
    return "\n".join(lines)


def facts(board: Leaderboard) -> list[str]:
    """Say what was evaluated and what a reader must keep in mind, one sentence each."""
    counts = board.counts
    sentences = []
    if board.quick:
        sentences.append(
            "**quick**: at least some episodes have quick phases; these numbers show that things work, "
            "they do not rank methods"
        )
    sentences += [
        f"dataset {board.dataset}, version {board.version} (sha256 {board.digest[:12] or 'unknown'}), "
        f"split {board.split}",
        f"episodes: {counts['manifest']} manifest, {counts['latent']} latent, {counts['silent']} silent, "
        f"{counts['no fault']} without a fault; headlines count manifest episodes",
        "threshold policy: reference (each detector sets its threshold on the episode's reference window)",
        f"code {board.code}",
    ]
    if board.early_alarms:
        told = ", ".join(f"{n} {when}" for when, n in sorted(board.early_alarms.items()))
        sentences.append(f"alarm that localizers were told (detected): {told}")
    return sentences


def _table(table: Table) -> list[str]:
    shown = columns_of(table)
    lines = [f"## {table.title}", ""]
    size = f"{table.episodes} fault episodes in {table.clusters} clusters"
    if table.task == "detection":
        size += f", {table.no_fault_episodes} no-fault episodes"
    lines += [size + ".", ""]
    if table.note:
        lines += [table.note, ""]
    against = f"vs {table.strongest_control}" if table.strongest_control else "vs control"
    header = ["#", "baseline", "kind", *(metric.title for metric in shown), "failed", "CPU", against]
    lines.append("| " + " | ".join(header) + " |")
    lines.append("|" + "---|" * len(header))
    for entry in table.entries:
        lines.append("| " + " | ".join(_cells(entry, shown)) + " |")
    if table.floor:
        cells = ["", "*guessing*", "floor", *(_floor(table, metric) for metric in shown), "", "", ""]
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    return lines


def _cells(entry: Entry, shown: tuple[Metric, ...]) -> list[str]:
    failed = ", ".join(f"{n} {status}" for status, n in sorted(entry.failed.items()))
    values = []
    for metric in shown:
        estimate = entry.metrics[metric.name]
        parts = (
            wording.number(estimate.value, metric),
            wording.interval(estimate, metric),
            wording.counts(estimate, metric) if metric.unit == "share" else "",
        )
        values.append(" ".join(part for part in parts if part))
    return [
        str(entry.place),
        entry.baseline,
        entry.kind,
        *values,
        failed,
        wording.seconds(entry.seconds),
        against(entry),
    ]


def against(entry: Entry) -> str:
    """Write the difference to the strongest control with its interval and corrected p."""
    if entry.against is None:
        return ""
    difference = entry.against.difference
    if not difference.known:
        return wording.NONE
    text = f"{difference.value:+.2f}"
    if difference.interval_known:
        text += f" [{difference.low:+.2f}, {difference.high:+.2f}]"
    if entry.adjusted_p is not None and not math.isnan(entry.adjusted_p):
        text += f" p={wording.p_value(entry.adjusted_p)}"
    return text


def _floor(table: Table, metric: Metric) -> str:
    estimate = table.floor.get(metric.name)
    return "" if estimate is None else wording.number(estimate.value, metric)


def _strata(board: Leaderboard) -> list[str]:
    if not board.strata:
        return []
    lines = [f"## Difficulty of the {HEADLINE} episodes", ""]
    lines += ["| stratum | episodes | means |", "|---|---|---|"]
    lines += [f"| {s.name} | {len(s.episodes)} | {s.meaning} |" for s in board.strata]
    return [*lines, ""]


def _failures(board: Leaderboard) -> list[str]:
    lines = ["## Failed rows", ""]
    if not board.failures:
        return [*lines, "None.", ""]
    lines += ["| baseline | episode | task | protocol | seed | status | reason |", "|---|---|---|---|---|---|---|"]
    for f in board.failures:
        reason = f.reason.replace("|", "\\|")
        lines.append(f"| {f.baseline} | {f.episode} | {f.task} | {f.protocol} | {f.seed} | {f.status} | {reason} |")
    return [*lines, ""]


def _all_metrics(board: Leaderboard) -> list[Metric]:
    seen: dict[str, Metric] = {}
    for table in board.tables:
        seen |= {metric.name: metric for metric in columns_of(table)}
    return list(seen.values())
