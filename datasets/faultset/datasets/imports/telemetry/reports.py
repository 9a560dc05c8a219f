"""Describe what an import of telemetry files recognised, dropped and refused."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from faultset.core.printable import count_text
from faultset.datasets.imports.contract import DataIssue
from faultset.datasets.imports.telemetry.rows import STAGED
from faultset.datasets.imports.telemetry.staging import FileFacts

if TYPE_CHECKING:
    from faultset.datasets.imports.telemetry.run import TelemetryReport


def describe_formats(files: Sequence[FileFacts]) -> list[str]:
    """Return a line for each format: its files, and their rows by table."""
    grouped: dict[str, list[FileFacts]] = defaultdict(list)
    for file in files:
        if not file.refusal:
            grouped[file.format].append(file)
    lines = []
    for name, members in sorted(grouped.items()):
        rows = sum_counts(file.rows for file in members)
        counts = ", ".join(f"{rows[table]:,} {table}" for table in STAGED if rows[table]) or "declarations only"
        lines.append(f"{name}: {count_text(len(members), 'file')}, {counts}")
    return lines


def sum_counts(all_counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    """Return the sums of counts."""
    total: Counter[str] = Counter()
    for counts in all_counts:
        total.update(counts)
    return total


def list_issues(report: TelemetryReport) -> Iterator[DataIssue]:
    """Yield refused files, dropped and changed records, and what needs attention."""
    for issue in report.issues:
        yield DataIssue("warning", ".", f"{issue[0].upper()}{issue[1:]}.", "The data are imported as they are.")
    for file in report.files:
        if file.refusal:
            reason = file.refusal.removeprefix(f"{file.name} ")
            problem = f"{file.refusal}." if reason == file.refusal else f"It {reason}."
            yield DataIssue("warning", file.name, problem, "It is left out.")
        for reason, count in file.dropped.items():
            yield DataIssue("warning", file.name, f"{count_text(count, 'record')}: {reason}.", "They are dropped.")
        for remark, count in file.notes.items():
            yield DataIssue("note", file.name, f"{count_text(count, 'record')}: {remark}.", "They are imported.")
        if file.redacted:
            yield DataIssue(
                "note",
                file.name,
                f"{count_text(file.redacted, 'text')} {'has' if file.redacted == 1 else 'have'} secrets.",
                "The secrets are hidden.",
            )
