"""Report what an import of telemetry files recognised, dropped and refused, and clocks that differ."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from faultset.core.printable import count_text
from faultset.core.times import duration_text, rfc3339
from faultset.datasets.imports.contract import DataIssue
from faultset.datasets.imports.telemetry.identity import Origin
from faultset.datasets.imports.telemetry.mapping import TelemetryMapping
from faultset.datasets.imports.telemetry.naming import ServiceNames, name_services
from faultset.datasets.imports.telemetry.rows import STAGED
from faultset.datasets.imports.telemetry.staging import FileFacts

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class TelemetryReport:
    """The files and services of an import, the time that the telemetry covers, and its issues."""

    files: tuple[FileFacts, ...]
    names: ServiceNames
    start_ns: int
    end_ns: int
    issues: tuple[str, ...]
    """One sentence per issue."""


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
    tables = dict.fromkeys(table for file in facts for table in file.rows)
    covered = {
        table: (
            min(file.first_ns[table] for file in facts if table in file.rows),
            max(file.last_ns[table] for file in facts if table in file.rows),
        )
        for table in tables
    }
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
    return sum(map(Counter, all_counts), Counter[str]())


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
            problem = f"{count_text(file.redacted, 'text')} {'has' if file.redacted == 1 else 'have'} secrets."
            yield DataIssue("note", file.name, problem, "The secrets are hidden.")


MAX_SPANS = 300_000
"""Maximum number of spans in memory; if there are more, whole traces are sampled by their ids."""
MIN_CALLS = 20
CONSISTENT_SHARE = 0.9
"""Share of the calls between two clocks that must be shifted in the same direction."""
MIN_SKEW_NS = 1_000_000
_COLUMNS = ["time", "trace_id", "span_id", "parent_span_id", "origin", "kind", "duration_ns"]
_DETACHED = ("producer", "consumer")
"""Kinds of spans that may end after their parents."""


def find_clock_skew(stage: Path, facts: Sequence[FileFacts], services: Mapping[str, str | None]) -> Iterator[str]:
    """Yield a sentence for each pair of hosts, or of services without known hosts, whose clocks differ.

    A call shows a skew if the child span is not longer than its parent, was timed by a different clock, and starts
    before or ends after the parent. Of at least 20 calls, nine in ten must show a skew in the same direction, with a
    median of at least 1 ms.
    """
    files = [file for file in facts if file.rows.get("spans")]
    if not files:
        return
    spans = _read_sample(stage, files)
    clocks = {text: Origin.parse(text).host or services.get(text) for text in spans["origin"].unique()}
    spans["clock"] = spans["origin"].map(clocks)
    spans = spans[spans["clock"].notna()].drop_duplicates(["trace_id", "span_id"])
    parents = spans[["trace_id", "span_id", "time", "duration_ns", "kind", "clock"]]
    pairs = spans.merge(
        parents.rename(columns={"span_id": "parent_span_id"}),
        on=["trace_id", "parent_span_id"],
        suffixes=("", "_parent"),
    )
    pairs = pairs[(pairs["clock"] != pairs["clock_parent"]) & (pairs["duration_ns"] <= pairs["duration_ns_parent"])]
    pairs = pairs[~pairs["kind"].isin(_DETACHED) & ~pairs["kind_parent"].isin(_DETACHED)]
    for (parent, child), calls in pairs.groupby(["clock_parent", "clock"], sort=True):
        sentence = _describe_skew(str(parent), str(child), _compute_shifts_ns(calls))
        if sentence is not None:
            yield sentence


def _read_sample(stage: Path, files: Sequence[FileFacts]) -> pd.DataFrame:
    """Return the spans of all traces, or of every n-th trace if all would not fit into memory."""
    import pandas as pd

    divisor = max(1, math.ceil(sum(file.rows["spans"] for file in files) / MAX_SPANS))
    batches = []
    for file in files:
        with pq.ParquetFile(stage / file.folder / "spans.parquet") as staged:
            for batch in staged.iter_batches(columns=_COLUMNS):
                ids = batch["trace_id"].to_numpy(zero_copy_only=False)
                batches.append(batch.filter(pa.array(pd.util.hash_array(ids, categorize=False) % divisor == 0)))
    return pa.Table.from_batches(batches).to_pandas().astype({"origin": object, "kind": object})


def _compute_shifts_ns(calls: pd.DataFrame) -> np.ndarray:
    """Return the shortest shift that puts each child within its parent; negative if the child's clock is ahead."""
    early_ns = calls["time_parent"].to_numpy() - calls["time"].to_numpy()
    late_ns = calls["duration_ns"].to_numpy() - calls["duration_ns_parent"].to_numpy() - early_ns
    return np.where(early_ns > 0, early_ns, np.where(late_ns > 0, -late_ns, 0)).astype(np.int64)


def _describe_skew(parent: str, child: str, shifts_ns: np.ndarray) -> str | None:
    if len(shifts_ns) < MIN_CALLS:
        return None
    for is_behind, shifted in ((True, shifts_ns > 0), (False, shifts_ns < 0)):
        amounts_ms = np.abs(shifts_ns[shifted]) / 1e6
        if shifted.mean() < CONSISTENT_SHARE or np.median(amounts_ms) * 1e6 < MIN_SKEW_NS:
            continue
        low, median, high = np.quantile(amounts_ms, [0.05, 0.5, 0.95])
        side, relation = ("behind", "start before") if is_behind else ("ahead of", "end after")
        doubt = "" if is_behind else f", unless {parent} does not wait for them"
        return (
            f"the clock of {child} is {side} the clock of {parent} by {_format_ms(median)} or more: "
            f"{shifted.sum():,} of {len(shifts_ns):,} calls {relation} their caller "
            f"({_format_ms(low)} to {_format_ms(high)}){doubt}; "
            "times are not corrected"
        )
    return None


def _format_ms(amount_ms: float) -> str:
    return f"{amount_ms:.3g} ms" if amount_ms < 999.5 else f"{amount_ms:,.0f} ms"
