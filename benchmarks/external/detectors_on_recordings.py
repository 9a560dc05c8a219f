"""Compare detectors over the recordings of several datasets.

    python benchmarks/external/detectors_on_recordings.py [--write] RESULTS...

RESULTS are folders that `evaluate --tasks detection` wrote for datasets of recordings. The script prints one row per
detector: for each dataset the recall, by how much it exceeds that of random alarms at the same rate, the false alarms
per day and VUS-PR, over all incidents. `--write` puts the table into detectors_on_recordings.md, which
docs/results/comparisons.md shows.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click

from faultset.evaluators.leaderboards.records import ALL_APPS, HEADLINE, RECORDED, TELEMETRY
from faultset.evaluators.leaderboards.texts import TextTable

PAGE = Path(__file__).with_suffix(".md")
SIGNIFICANT = 0.05

Document = dict[str, Any]
"""A JSON object of leaderboard.json."""


def find_recorded_table(leaderboard: Document) -> Document:
    """Return the headline table of recordings over all applications, or of the only application.

    Raises
    ------
    ValueError
        The evaluation has no table of recordings.
    """
    key = ("detection", RECORDED, HEADLINE, TELEMETRY, "all")
    names = ("task", "protocol", "verdict", "group", "faults")
    tables = {t["app"]: t for t in leaderboard["tables"] if tuple(t[name] for name in names) == key}
    if not tables:
        raise ValueError("no table of detectors on recordings; run evaluate with --tasks detection")
    return tables.get(ALL_APPS) or tables[min(tables)]


def format_entry(entry: Document) -> list[str]:
    """Return recall, gain over random alarms (bold if significant), false alarms per day, and VUS-PR."""
    metrics, against = entry["metrics"], entry["against"]
    gain = ""
    if against and against["difference"]["value"] is not None:
        gain = f"{against['difference']['value']:+.2f}"
        p = entry["adjusted_p"]
        significant = isinstance(p, float) and p < SIGNIFICANT and against["difference"]["value"] > 0
        gain = f"**{gain}**" if significant else gain
    return [
        _format_estimate(metrics["recall"], with_interval=True),
        gain,
        _format_estimate(metrics["false_alarms_per_day"]),
        _format_estimate(metrics["vus_pr"]),
    ]


def _format_estimate(estimate: Document, *, with_interval: bool = False) -> str:
    value, low, high = (estimate[name] for name in ("value", "low", "high"))
    if not isinstance(value, int | float) or not math.isfinite(value):
        return "-"
    known = all(isinstance(end, int | float) for end in (low, high))
    return f"{value:.2f} [{low:.2f}, {high:.2f}]" if with_interval and known else f"{value:.2f}"


def format_detectors(tables: dict[str, Document]) -> str:
    """Return the Markdown table, sorted by the mean gain over random alarms; controls come last."""
    header, counts = ["method", "kind"], ["*incidents; hours watched*", ""]
    for name, table in tables.items():
        header += [f"{name}: recall", "above random", "false alarms / day", "VUS-PR"]
        counts += [f"{table['episodes']}; {table['watched_s'] / 3600:,.0f} h", "", "", ""]
    entries = {name: {e["baseline"]: e for e in table["entries"]} for name, table in tables.items()}
    kinds = {e["baseline"]: e["kind"] for table in tables.values() for e in table["entries"]}

    def mean_gain(baseline: str) -> float:
        found = [e["against"] for by_name in entries.values() if (e := by_name.get(baseline))]
        gains = [against["difference"]["value"] for against in found if against]
        known = [gain for gain in gains if gain is not None]
        return sum(known) / len(known) if known else -math.inf

    rows = []
    for baseline in sorted(kinds, key=lambda name: (-mean_gain(name), name)):
        cells = [f"`{baseline}`", kinds[baseline]]
        for by_name in entries.values():
            cells += format_entry(by_name[baseline]) if baseline in by_name else [""] * 4
        rows.append(cells)
    return "\n".join(TextTable.of(header, [counts, *rows]).markdown()) + "\n"


@click.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--write", is_flag=True, help=f"Put the table into {PAGE.name}.")
def main(results: tuple[Path, ...], write: bool) -> None:
    """Print the table of detectors over RESULTS."""
    tables = {
        folder.resolve().name: find_recorded_table(json.loads((folder / "leaderboard.json").read_text("utf-8")))
        for folder in results
    }
    text = format_detectors(tables)
    click.echo(text)
    if write:
        PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
