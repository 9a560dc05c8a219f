"""A comparison as one HTML page that needs nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib import resources

from faultset.evaluators.comparing import writing
from faultset.evaluators.comparing.records import Comparison, PairedEntry, PairedTable
from faultset.evaluators.leaderboards import wording


@dataclass(frozen=True, kw_only=True)
class Span:
    """A difference from -1 to 1 on a track, in percent."""

    at: float
    low: float | None
    high: float | None


def page(comparison: Comparison) -> str:
    """Return the page; light and dark, no script, no network."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_read("faultset.evaluators.comparing", "page.html.j2"))
    return template.render(
        css=_read("faultset.evaluators.reports", "page.css"),
        c=comparison,
        remarks=writing.remarks(comparison),
        w=writing,
        seconds=wording.seconds,
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


def _read(package: str, name: str) -> str:
    return (resources.files(package) / name).read_text(encoding="utf-8")
