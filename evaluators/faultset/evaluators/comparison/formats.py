"""A comparison as JSON, Markdown and HTML, and on the terminal."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from faultset.core.files import replace_text
from faultset.core.printable import count_text, printable, with_texts
from faultset.evaluators.comparison.pairing import Comparison, PairedEntry, PairedTable
from faultset.evaluators.leaderboards.formats import markdown_text, to_json
from faultset.evaluators.leaderboards.texts import NONE, TextCell, TextColumn, TextTable, format_p, format_seconds
from faultset.evaluators.reports.page import fill_template
from faultset.evaluators.results.rows import writing
from faultset.evaluators.scoring.intervals import Estimate
from faultset.evaluators.scoring.metrics import Metric

if TYPE_CHECKING:
    from rich.console import Console


COMPARISON_VERSION = 1
FILES = ("comparison.json", "comparison.md", "comparison.html")
_MAX_EPISODES = 4


def markdown(comparison: Comparison) -> str:
    comparison = with_texts(comparison, markdown_text)
    old, new = comparison.old, comparison.new
    lines = ["# Comparison of two evaluations", ""]
    for name, run in (("old", old), ("new", new)):
        lines.append(
            f"- {name}: {run.folder}: {run.dataset} {run.version} (sha256 {run.digest[:12] or 'not recorded'}), "
            f"code {run.code}, {count_text(run.episodes, 'episode')}, {count_text(run.methods, 'method')}, "
            f"{count_text(run.answers, 'answer')}"
        )
    lines += [f"- {line}" for line in remarks(comparison)] + [""]
    lines += ["## What else changed", ""]
    if comparison.changes:
        rows = [[change.category, change.what, change.old, change.new] for change in comparison.changes]
        lines += TextTable.of(("", "what", "old", "new"), rows).markdown()
    else:
        lines.append("Nothing: same data, code, libraries, seeds and settings.")
    lines.append("")
    for table in comparison.tables:
        lines += _render_section(table, comparison)
    lines += [
        "## How to read this",
        "",
        "- Differences are new minus old, over the episodes that the method answered in both runs. Faults that clients "
        "did not notice are left out.",
        "- Brackets are 95 % intervals over clusters (application, fault, target).",
        "- p is from a paired test that flips the signs of whole clusters, Holm-corrected over the methods of a "
        "table. It needs six clusters. McNemar's exact test is added if every cluster is one episode and no answer is "
        "partly right.",
        "- Same answers: episodes in which all seeds answered exactly as before.",
        "",
    ]
    return "\n".join(lines)


def remarks(comparison: Comparison) -> list[str]:
    """Return what was compared and what could not be, one sentence each."""
    old, new = comparison.old, comparison.new
    sentences = [f"compared on {count_text(comparison.episodes, 'episode')} present in both runs"]
    if old.digest and new.digest and old.digest != new.digest:
        sentences.append(
            "the runs scored different versions of the data; episodes with the same labels are compared, but their "
            "telemetry may differ"
        )
    for description, names in (
        ("methods only in old", comparison.only_old_methods),
        ("methods only in new", comparison.only_new_methods),
        ("episodes only in old", comparison.only_old_episodes),
        ("episodes only in new", comparison.only_new_episodes),
        ("episodes left out because their labels differ", comparison.other_truth),
    ):
        if names:
            sentences.append(f"{description}: {_shorten(names, 12)}")
    return sentences


def summary(table: PairedTable) -> str:
    """Count better, worse and equal methods of a table."""
    first, methods = table.measures[0].name, len(table.entries)
    better = sum(entry.differences[first].value > 0 for entry in table.entries)
    worse = sum(entry.differences[first].value < 0 for entry in table.entries)
    significant = sum(entry.adjusted_p < 0.05 for entry in table.entries)
    unchanged = sum(entry.same_answers == entry.episodes for entry in table.entries)
    text = f"{count_text(methods, 'method')}: {better} better, {worse} worse, {methods - better - worse} equal"
    text += f"; {unchanged} gave the same answers"
    return f"{text}; {count_text(significant, 'difference')} significant at 0.05 after Holm correction"


def difference(estimate: Estimate) -> TextCell:
    """Format a signed difference with its interval."""
    if not estimate.known:
        return TextCell(text=NONE, tip=estimate.reason)
    text = f"{estimate.value:+.2f}" if abs(estimate.value) > 1e-9 else "0"
    interval = f"[{estimate.low:+.2f}, {estimate.high:+.2f}]" if estimate.interval_known else ""
    return TextCell(text=text, detail=interval, tip=estimate.method or estimate.reason)


def render_table(table: PairedTable, entries: Iterable[PairedEntry], comparison: Comparison) -> TextTable:
    """Return the methods of a table as text; the terminal shows only the first columns."""
    first, *others = table.measures
    columns = [
        TextColumn(title="method"),
        *(TextColumn(title=title, justify="right") for title in (f"{first.title} old", "new", "difference")),
        TextColumn(title="better", justify="right", meaning="episodes with a better score"),
        TextColumn(title="worse", justify="right", meaning="episodes with a worse score"),
        TextColumn(title="CPU", justify="right"),
        TextColumn(title="after Holm", justify="right", meaning="Holm-corrected p of the paired test over clusters"),
        *(TextColumn(title=f"{measure.title}: difference", meaning=measure.meaning) for measure in others),
        TextColumn(title="McNemar", meaning="p of the exact test if no problem is repeated, not corrected"),
        TextColumn(title="episodes"),
        TextColumn(title="same", meaning="episodes in which all seeds answered exactly as before"),
        TextColumn(title="changed", meaning="episodes with a better or worse score"),
    ]
    entries = list(entries)
    return TextTable(
        columns=tuple(columns),
        rows=tuple(_render_entry(entry, table.measures, comparison) for entry in entries),
        kinds=tuple(entry.kind for entry in entries),
    )


TERMINAL_COLUMNS = range(8)
"""Columns of `render_table` on the terminal."""


def _render_entry(entry: PairedEntry, measures: Sequence[Metric], comparison: Comparison) -> tuple[TextCell, ...]:
    first, *others = (measure.name for measure in measures)
    mcnemar = entry.paired.mcnemar
    return (
        TextCell(text=entry.baseline),
        TextCell(text=f"{entry.old[first]:.2f}"),
        TextCell(text=f"{entry.new[first]:.2f}"),
        difference(entry.differences[first]),
        TextCell(text=str(len(entry.better) or "")),
        TextCell(text=str(len(entry.worse) or "")),
        TextCell(text=f"{format_seconds(entry.old_seconds)} → {format_seconds(entry.new_seconds)}"),
        TextCell(text=_format_significance(entry)),
        *(difference(entry.differences[name]) for name in others),
        TextCell(text=format_p(mcnemar.p), tip=mcnemar.reason),
        TextCell(text=f"{entry.episodes} in {count_text(entry.clusters, 'cluster')}"),
        TextCell(text=f"{entry.same_answers}/{entry.episodes}"),
        TextCell(
            text=name_changed_episodes(entry, comparison),
            tip=name_changed_episodes(entry, comparison, len(comparison.labels)),
        ),
    )


def _format_significance(entry: PairedEntry) -> str:
    """Format the corrected p of the clustered test, or the reason why it is missing."""
    if not entry.changed:
        return NONE
    return entry.paired.test.reason if math.isnan(entry.adjusted_p) else format_p(entry.adjusted_p)


def _render_section(table: PairedTable, comparison: Comparison) -> list[str]:
    shown = [entry for entry in table.entries if entry.changed or entry.same_answers < entry.episodes]
    rendered = [*render_table(table, shown, comparison).markdown(), ""] if shown else []
    return [f"## {table.title}", "", summary(table) + ".", "", *rendered]


def name_changed_episodes(entry: PairedEntry, comparison: Comparison, limit: int = _MAX_EPISODES) -> str:
    """List at most `limit` episodes with a better score and at most `limit` with a worse one."""
    texts = []
    for sign, episodes in (("+", entry.better), ("-", entry.worse)):
        if episodes:
            texts.append(f"{sign} {_shorten([comparison.labels[e] for e in episodes], limit)}")
    return "; ".join(texts)


def _shorten(names: Sequence[str], limit: int) -> str:
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {rest} more" if rest > 0 else "")


def page(comparison: Comparison) -> str:
    """Return the comparison as HTML; methods that changed come first."""
    sections = []
    for table in comparison.tables:
        changed = [entry for entry in table.entries if entry.changed]
        others = [entry for entry in table.entries if not entry.changed]
        texts = (render_table(table, entries, comparison) for entries in (changed, others))
        sections.append((table, changed, *texts))
    return fill_template(
        "comparison.html.j2",
        c=comparison,
        remarks=remarks(comparison),
        difference=difference,
        summary=summary,
        locate_bar=locate_bar,
        sections=sections,
    )


def locate_bar(entry: PairedEntry, name: str) -> dict[str, float | None] | None:
    """Return a difference and its interval in percent of an axis from -1 to 1; None if it is unknown."""
    estimate = entry.differences[name]
    if not estimate.known:
        return None
    at, low, high = (
        None if math.isnan(value) else round(50 + 50 * max(-1.0, min(1.0, value)), 2)
        for value in (estimate.value, estimate.low, estimate.high)
    )
    return {"at": at or 0.0, "low": low, "high": high}


def write(comparison: Comparison, folder: Path) -> Path:
    """Write comparison.json, comparison.md and comparison.html into a folder, and return it."""
    content = {"comparison_version": COMPARISON_VERSION, **to_json(comparison)}
    texts = (json.dumps(content, indent=1, allow_nan=False) + "\n", markdown(comparison), page(comparison))
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in zip(FILES, texts, strict=True):
            replace_text(folder / name, text, durable=False)
    return folder


ROWS_SHOWN = 15


def show_comparison(comparison: Comparison, console: Console) -> None:
    """Print the differences of the runs, then the methods whose scores changed."""
    comparison = with_texts(comparison, printable)
    console.print()
    for line in remarks(comparison):
        console.print(line, style="dim", markup=False)
    if not comparison.changes:
        console.print("same data, code, libraries, seeds and settings", style="dim", markup=False)
    for change in comparison.changes:
        style = "yellow" if change.category == "data" else None
        console.print(f"{change.what}: {change.old} → {change.new}", style=style, markup=False)
    for table in comparison.tables:
        console.print()
        console.print(f"[bold]{table.title}[/]\n[dim]{summary(table)}[/]")
        changed = [entry for entry in table.entries if entry.changed]
        if changed:
            text = render_table(table, changed[:ROWS_SHOWN], comparison).select(TERMINAL_COLUMNS)
            console.print(text.rich())
        if len(changed) > ROWS_SHOWN:
            console.print(f"and {len(changed) - ROWS_SHOWN} more in the files", style="dim", markup=False)
