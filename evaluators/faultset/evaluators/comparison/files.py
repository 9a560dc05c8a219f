"""The files of a comparison, among them a page that needs nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from faultset.core.files import replace_text
from faultset.evaluators.comparison import formats
from faultset.evaluators.comparison.records import Comparison, PairedEntry, PairedTable
from faultset.evaluators.reports.templates import filled
from faultset.evaluators.results.output_folder import writing


@dataclass(frozen=True, kw_only=True)
class Span:
    """A difference from -1 to 1 on a track, in percent."""

    at: float
    low: float | None
    high: float | None


def page(comparison: Comparison) -> str:
    """Return the page; light and dark, no script, no network."""
    return filled(
        "comparison.html.j2",
        c=comparison,
        remarks=formats.remarks(comparison),
        w=formats,
        span=span,
        parts=[_part(table) for table in comparison.tables],
    )


def _part(table: PairedTable) -> tuple[PairedTable, list[PairedEntry], list[PairedEntry]]:
    """Methods that were scored otherwise are shown, the rest is folded."""
    changed = [entry for entry in table.entries if entry.changed]
    return table, changed, [entry for entry in table.entries if not entry.changed]


def span(entry: PairedEntry, name: str) -> Span | None:
    """Place a difference on the track; None where there is none."""
    estimate = entry.differences[name]
    if not estimate.known:
        return None
    place = lambda value: None if math.isnan(value) else round(50 + 50 * max(-1.0, min(1.0, value)), 2)  # noqa: E731
    return Span(at=place(estimate.value) or 0.0, low=place(estimate.low), high=place(estimate.high))


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
