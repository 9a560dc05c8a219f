"""The files of a comparison: JSON, Markdown and a self-contained page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from faultset.core.files import replace_text
from faultset.evaluators.comparison import formats
from faultset.evaluators.comparison.records import Comparison, PairedEntry
from faultset.evaluators.reports.templates import fill_template
from faultset.evaluators.results.output_folder import writing


@dataclass(frozen=True, kw_only=True)
class BarPosition:
    """Positions of a difference and its interval on an axis from -1 to 1, in percent of the axis."""

    at: float
    low: float | None
    high: float | None


def page(comparison: Comparison) -> str:
    """Return the comparison as HTML; methods that changed come first."""
    sections = []
    for table in comparison.tables:
        changed = [entry for entry in table.entries if entry.changed]
        others = [entry for entry in table.entries if not entry.changed]
        texts = (formats.render_table(table, entries, comparison) for entries in (changed, others))
        sections.append((table, changed, *texts))
    return fill_template(
        "comparison.html.j2",
        c=comparison,
        remarks=formats.remarks(comparison),
        w=formats,
        locate_bar=locate_bar,
        sections=sections,
    )


def locate_bar(entry: PairedEntry, name: str) -> BarPosition | None:
    """Return the position of a difference; None if it is unknown."""
    estimate = entry.differences[name]
    if not estimate.known:
        return None
    at, low, high = (
        None if math.isnan(value) else round(50 + 50 * max(-1.0, min(1.0, value)), 2)
        for value in (estimate.value, estimate.low, estimate.high)
    )
    return BarPosition(at=at or 0.0, low=low, high=high)


def write(comparison: Comparison, folder: Path) -> Path:
    """Write comparison.json, comparison.md and comparison.html into a folder, and return it.

    Raises
    ------
    UsageError
        The folder cannot be written.
    DataError
        The disk is full.
    """
    texts = {"comparison.md": formats.markdown(comparison), "comparison.html": page(comparison)}
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        formats.write_json(comparison, folder / "comparison.json")
        for name, text in texts.items():
            replace_text(folder / name, text, durable=False)
    return folder
