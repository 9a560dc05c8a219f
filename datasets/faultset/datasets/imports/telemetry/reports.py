"""Report what an import of telemetry files recognised, dropped and refused."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from faultset.core.printable import count_text
from faultset.core.times import duration_text, rfc3339
from faultset.datasets.imports.contract import DataIssue
from faultset.datasets.imports.telemetry.clock_skew import find_clock_skew
from faultset.datasets.imports.telemetry.mapping import TelemetryMapping
from faultset.datasets.imports.telemetry.naming import ServiceNames, name_services
from faultset.datasets.imports.telemetry.rows import STAGED
from faultset.datasets.imports.telemetry.staging import FileFacts


@dataclass(frozen=True, kw_only=True)
class TelemetryReport:
    """The files, services and issues of an import.

    Attributes
    ----------
    files
        Facts about each file.
    names
        Services and their names in the data.
    start_ns, end_ns
        Time that the telemetry covers.
    issues
        One sentence per issue.
    """

    files: tuple[FileFacts, ...]
    names: ServiceNames
    start_ns: int
    end_ns: int
    issues: tuple[str, ...]


def build_report(folder: Path, facts: Sequence[FileFacts], mapping: TelemetryMapping) -> TelemetryReport:
    """Find the services of staged files, and the issues that show only when files are compared."""
    origins: dict[str, Counter[str]] = {}
    for file in facts:
        for table, counts in file.origins.items():
            origins.setdefault(table, Counter()).update(counts)
    names = name_services(origins, mapping)
    start_ns = min(min(file.first_ns.values()) for file in facts if file.rows)
    end_ns = max(max(file.last_ns.values()) for file in facts if file.rows) + 1
    issues = (*_find_issues(facts, names), *find_clock_skew(folder, facts, names.of_origin))
    return TelemetryReport(files=tuple(facts), names=names, start_ns=start_ns, end_ns=end_ns, issues=issues)


def _find_issues(facts: Sequence[FileFacts], names: ServiceNames) -> Iterator[str]:
    """Yield sentences about tables whose times do not overlap, and about rows without a service."""
    covered: dict[str, tuple[int, int]] = {}
    for file in facts:
        for table in file.rows:
            first, last = file.first_ns[table], file.last_ns[table]
            earlier = covered.get(table, (first, last))
            covered[table] = min(earlier[0], first), max(earlier[1], last)
    for table, (first, last) in covered.items():
        for other, (start, end) in covered.items():
            if table < other and (last < start or end < first):
                gap_s = (start - last if last < start else first - end) / 1e9
                yield (
                    f"{table} ({rfc3339(first)} to {rfc3339(last)}) and {other} ({rfc3339(start)} to "
                    f"{rfc3339(end)}) do not overlap and are {duration_text(gap_s)} apart; check time zones"
                )
    for table, count in names.unmatched.items():
        yield f"{count_text(count, 'row')} of {table} cannot be attributed to a service"


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
    """Yield the issues of a report, refused files, and dropped or changed records."""
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
