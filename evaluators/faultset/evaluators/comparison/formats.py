"""A comparison as JSON, as Markdown and in one line for each method on the terminal."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

from faultset.core.files import replace_text
from faultset.core.printable import with_texts
from faultset.evaluators.comparison.records import Comparison, PairedEntry, PairedTable
from faultset.evaluators.leaderboards import number_formats
from faultset.evaluators.leaderboards.formats import markdown_text, to_json
from faultset.evaluators.leaderboards.grids import Grid
from faultset.evaluators.statistics.intervals import Estimate

COMPARISON_VERSION = 4
"""Version 4 describes measures as `leaderboard.json` describes metrics."""
FILES = ("comparison.json", "comparison.md", "comparison.html")
_EPISODES_NAMED = 4


def write_json(comparison: Comparison, path: Path) -> None:
    """Write everything that was computed; unknown values are null and say why."""
    content = {"comparison_version": COMPARISON_VERSION, **to_json(comparison)}
    replace_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n", durable=False)


def markdown(comparison: Comparison) -> str:
    """Render a comparison as Markdown."""
    comparison = with_texts(comparison, markdown_text)
    old, new = comparison.old, comparison.new
    lines = ["# Comparison of two evaluations", ""]
    for name, run in (("old", old), ("new", new)):
        lines.append(
            f"- {name}: {run.folder}: {run.dataset} {run.version} (sha256 {run.digest[:12] or 'not recorded'}), "
            f"code {run.code}, {run.episodes} episodes, {run.methods} methods, {run.answers} answers"
        )
    lines += [f"- {line}" for line in remarks(comparison)] + [""]
    lines += ["## What else changed", ""]
    if comparison.changes:
        rows = [[change.weight, change.what, change.old, change.new] for change in comparison.changes]
        lines += Grid.of(("", "what", "old", "new"), rows).markdown()
    else:
        lines.append("Nothing that the results record: same data, code, libraries, seeds and settings.")
    lines.append("")
    for table in comparison.tables:
        lines += _table(table, comparison)
    lines += [
        "## How to read this",
        "",
        "- Differences are new minus old, per method over the episodes that both runs ran it on. Faults that "
        "clients did not feel are left out.",
        "- Brackets are 95 % intervals from what clusters (application, fault, target) differ by.",
        "- p flips the signs of whole clusters, all ways up to 14 clusters, and is corrected by Holm over the methods "
        "of a table; below six clusters nothing could be significant. McNemar's exact test stands beside it where "
        "every problem occurs once and every answer is right or wrong.",
        "- Same answers: episodes in which every seed answered exactly as before.",
        "",
    ]
    return "\n".join(lines)


def remarks(comparison: Comparison) -> list[str]:
    """Say what was paired and what could not be, one sentence each."""
    old, new = comparison.old, comparison.new
    remarks_made = [f"{comparison.episodes} episodes are in both and are compared"]
    if old.digest and new.digest and old.digest != new.digest:
        remarks_made.append(
            "the runs scored different versions of the data; episodes with the same labels are paired, "
            "but their telemetry may differ"
        )
    for what, names in (
        ("methods only in old", comparison.only_old_methods),
        ("methods only in new", comparison.only_new_methods),
        ("episodes only in old", comparison.only_old_episodes),
        ("episodes only in new", comparison.only_new_episodes),
        ("episodes left out because their labels differ", comparison.other_truth),
    ):
        if names:
            remarks_made.append(f"{what}: {_some(names, 12)}")
    return remarks_made


def summary(table: PairedTable) -> str:
    """Count what became of the methods of a table."""
    first = table.measures[0].name
    up = sum(entry.differences[first].value > 0 for entry in table.entries)
    down = sum(entry.differences[first].value < 0 for entry in table.entries)
    sure = sum(entry.adjusted_p < 0.05 for entry in table.entries)
    same = sum(entry.same_answers == entry.episodes for entry in table.entries)
    text = f"{len(table.entries)} methods: {up} better, {down} worse, {len(table.entries) - up - down} equal"
    text += f"; {same} gave the very same answers"
    return f"{text}; {sure} {'difference' if sure == 1 else 'differences'} significant at 0.05 after Holm"


def difference(estimate: Estimate) -> str:
    """Write a signed difference with its interval."""
    if not estimate.known:
        return number_formats.NONE
    text = f"{estimate.value:+.2f}" if abs(estimate.value) > 1e-9 else "0"
    if estimate.interval_known:
        text += f" [{estimate.low:+.2f}, {estimate.high:+.2f}]"
    return text


def significance(entry: PairedEntry) -> str:
    """Write the corrected p of the clustered test, or why there is none."""
    if not entry.changed:
        return ""
    if math.isnan(entry.adjusted_p):
        return entry.paired.test.reason
    return number_formats.p_value(entry.adjusted_p)


def exact(entry: PairedEntry) -> str:
    """Write McNemar's exact p where it may be used."""
    return number_formats.p_value(entry.paired.mcnemar.p)


def cost(entry: PairedEntry) -> str:
    """Write processor time before and after."""
    return f"{number_formats.seconds(entry.old_seconds)} → {number_formats.seconds(entry.new_seconds)}"


def _table(table: PairedTable, comparison: Comparison) -> list[str]:
    lines = [f"## {table.title}", "", summary(table) + ".", ""]
    shown = [entry for entry in table.entries if entry.changed or entry.same_answers < entry.episodes]
    if not shown:
        return lines
    first = table.measures[0]
    titles = [f"{measure.title}: difference" for measure in table.measures]
    header = ["method", f"{first.title} old", "new", *titles, "Holm", "McNemar", "episodes", "same", "CPU", "changed"]
    rows = []
    for entry in shown:
        cells = [entry.baseline, f"{entry.old[first.name]:.2f}", f"{entry.new[first.name]:.2f}"]
        cells += [difference(entry.differences[measure.name]) for measure in table.measures]
        cells += [significance(entry), exact(entry), f"{entry.episodes} in {entry.clusters} clusters"]
        cells += [f"{entry.same_answers}/{entry.episodes}", cost(entry), moved(entry, comparison)]
        rows.append(cells)
    return [*lines, *Grid.of(header, rows).markdown(), ""]


def moved(entry: PairedEntry, comparison: Comparison) -> str:
    """Name the episodes in which a method became better or worse."""
    parts = []
    for sign, episodes in (("+", entry.better), ("-", entry.worse)):
        if episodes:
            parts.append(f"{sign} {_some([comparison.labels[e] for e in episodes], _EPISODES_NAMED)}")
    return "; ".join(parts)


def _some(names: Sequence[str], most: int) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
