"""Write the chunks of a running recording, sample spans and log lines, and free the memory of written rows."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as arrow_compute

from faultset.collector.load.patterns import STEP_S, multipliers
from faultset.collector.plans.plan import Plan
from faultset.collector.plans.timeline import LATE_S
from faultset.collector.platforms.base import EpisodePlatform
from faultset.collector.platforms.journal import Journal
from faultset.collector.sources.contract import DiscardingSource
from faultset.core.times import SECOND_NS
from faultset.datasets.format.context import RecordingContext, Sampling
from faultset.datasets.format.incidents import read_incidents
from faultset.datasets.format.recordings import RECORDINGS, RecordingWriter, read_chunks
from faultset.datasets.format.schemas import TABLES, without_episode

TRACE_MARGIN_S = 10.0
"""Seconds before and after a chunk in which the remaining spans of its traces are searched for."""
LOAD_STEP_S = 10.0

_log = logging.getLogger(__name__)


def recorded_s(root: Path, recording: str) -> float:
    """Return how many seconds of a recording are complete; 0 if it does not exist."""
    chunks = read_chunks(root / RECORDINGS / recording)
    return sum(chunk.end_ns - chunk.start_ns for chunk in chunks) / SECOND_NS


class ChunkRecorder:
    """Writes a segment of a recording chunk by chunk.

    The planned rate of the load, drawn with `load_seed` from `load_start_ns`, is part of the truth.
    """

    def __init__(
        self,
        root: Path,
        context: RecordingContext,
        plan: Plan,
        platform: EpisodePlatform,
        journal: Journal,
        *,
        load_seed: int,
        start_ns: int,
        load_start_ns: int,
    ):
        assert plan.recording is not None
        self._plan, self._platform, self._journal = plan, platform, journal
        self._sampling, self._chunk_ns = plan.recording.sampling, round(plan.recording.chunk_s * SECOND_NS)
        self._writer = RecordingWriter(root, context)
        self._rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self._incidents: dict[str, dict[str, Any]] = {}
        self._written_records = 0
        self._levels, self._level_ns = multipliers(plan.traffic.pattern, load_seed), load_start_ns
        self.start_ns = start_ns
        """Start of the chunk that is not yet written."""
        self._mark_interrupted()

    def _mark_interrupted(self) -> None:
        """Mark as void the time of incidents that the last segment did not finish; earlier ones are marked already."""
        folder = self._writer.folder
        chunks = read_chunks(folder)
        if not chunks:
            return
        segment = [chunk for chunk in chunks if chunk.segment == chunks[-1].segment]
        start_ns, end_ns = segment[0].start_ns, segment[-1].end_ns
        for incident in read_incidents(folder, chunks):
            if incident.recover_done_ns is None and (incident.inject_start_ns or end_ns) >= start_ns:
                detail = f"the recording was interrupted during {incident.fault} on {', '.join(incident.targets)}"
                self.add_void(incident.inject_start_ns or end_ns, end_ns, "interrupted", detail)

    def add(self, table: str, row: Mapping[str, Any]) -> None:
        """Add a row to a truth table; it is written with the chunk of its time."""
        self._rows[table].append(dict(row))

    def add_void(self, start_ns: int, end_ns: int, reason: str, detail: str) -> None:
        """Mark a period as void; a period that continues the last one for the same reason extends it."""
        voids = self._rows["voids"]
        if voids and voids[-1]["reason"] == reason and start_ns <= voids[-1]["end"] <= end_ns:
            voids[-1]["end"] = end_ns
        elif start_ns < end_ns:
            self.add("voids", {"start": start_ns, "end": end_ns, "reason": reason, "detail": detail})

    def set_incident(self, row: Mapping[str, Any]) -> None:
        """Replace the row of an incident, which is written with the next chunk."""
        self._incidents[row["incident"]] = dict(row)

    def write_due(self, now_ns: int, needed_ns: int) -> bool:
        """Write the open chunk if its telemetry is complete, keep what verdicts need, and return whether it was
        written.
        """
        end_ns = self.start_ns + self._chunk_ns
        if now_ns < end_ns + LATE_S * SECOND_NS:
            return False
        self.write(end_ns)
        self.discard(min(needed_ns, end_ns))
        return True

    def discard(self, before_ns: int) -> None:
        for source in self._platform.sources.values():
            if isinstance(source, DiscardingSource):
                source.discard(before_ns - round(2 * TRACE_MARGIN_S * SECOND_NS))

    def write(self, end_ns: int) -> None:
        """Write the chunk from the end of the previous one to `end_ns`."""
        start_ns = self.start_ns
        tables = {name: [self._read(name, start_ns, end_ns)] for name in TABLES if name != "requests"}
        requests = self._read("requests", start_ns, end_ns)
        for start, end, count in request_counts(
            requests["scheduled"].cast(pa.int64()).to_numpy(), start_ns, end_ns, round(LOAD_STEP_S * SECOND_NS)
        ):
            self.add("load", {"start": start, "end": end, "planned_rps": self._planned_rps(end), "requests": count})
        truth = {name: self._take(name, end_ns) for name in ("voids", "decoys", "load", "evidence")}
        due_incidents = {name: row for name, row in self._incidents.items() if row["inject_start"] < end_ns}
        records = self._journal.records[self._written_records :]
        self._writer.append(
            start_ns,
            end_ns,
            {**tables, "requests": [requests]},
            truth={**truth, "incidents": list(due_incidents.values())},
            journal="".join(json.dumps(record, sort_keys=True, default=str) + "\n" for record in records),
        )
        for name, row in due_incidents.items():
            if row.get("recover_done") is not None:
                del self._incidents[name]
        self._written_records = self._journal.discard(self._written_records + len(records))
        self.start_ns = end_ns
        _log.info("chunk written: %s", ", ".join(f"{sum(map(len, rows))} {name}" for name, rows in tables.items()))

    def _take(self, table: str, end_ns: int) -> list[dict[str, Any]]:
        """Remove and return the rows of a truth table that belong to the chunk; cut periods at its end."""
        rows, self._rows[table] = self._rows[table], []
        for row in rows:
            start_ns = row.get("start", row.get("time")) or 0
            if start_ns >= end_ns:
                self._rows[table].append(row)
            elif table == "voids" and row["end"] > end_ns:
                self._rows[table].append({**row, "start": end_ns})
                row["end"] = end_ns
        return [row for row in rows if (row.get("start", row.get("time")) or 0) < end_ns]

    def _read(self, table: str, start_ns: int, end_ns: int) -> pa.Table:
        margin_ns = round(TRACE_MARGIN_S * SECOND_NS) if table == "spans" else 0
        schema = without_episode(TABLES[table])
        if table not in self._platform.sources:
            return schema.empty_table()
        batches = list(self._platform.sources[table].snapshot(start_ns - margin_ns, end_ns + margin_ns))
        rows = pa.Table.from_batches(batches) if batches else schema.empty_table()
        if table == "spans":
            return sample_spans(rows, self._sampling, start_ns, end_ns)
        return sample_logs(rows, self._sampling) if table == "logs" else rows

    def _planned_rps(self, end_ns: int) -> float | None:
        """Return the mean planned rate since the last call."""
        steps = max(0, round((end_ns - self._level_ns) / SECOND_NS / STEP_S))
        self._level_ns += round(steps * STEP_S * SECOND_NS)
        levels = np.fromiter(islice(self._levels, steps), float)
        return float(self._plan.rate_rps * levels.mean()) if len(levels) else None


# type checkers do not see the module's functions, which are created at import
pc: Any = arrow_compute


def select_traces(spans: pa.Table, sampling: Sampling) -> pa.Array:
    """Return the ids of the traces to keep: the sample and, if `slow_traces_s` is set, failed and slow traces."""
    ids = spans["trace_id"]
    trace_ids = ids.unique().to_pylist()
    kept_ids = {trace for trace in trace_ids if sampling.samples(trace)}
    if sampling.slow_traces_s is not None:
        failed = pc.equal(spans["status"].cast(pa.string()), "error")
        slow = pc.greater_equal(spans["duration_ns"], round(sampling.slow_traces_s * SECOND_NS))
        kept_ids |= set(ids.filter(pc.or_(failed, slow)).to_pylist())
    return pa.array(sorted(kept_ids), pa.string())


def sample_spans(spans: pa.Table, sampling: Sampling, start_ns: int, end_ns: int) -> pa.Table:
    """Return the spans that start in a window and belong to kept traces.

    `spans` are of a window that extends beyond both ends, so that traces are complete.
    """
    times = spans["time"].cast(pa.int64()).to_numpy()
    window_spans = spans.filter(pa.array((times >= start_ns) & (times < end_ns)))
    if sampling.traces >= 1:
        return window_spans
    return window_spans.filter(pc.is_in(window_spans["trace_id"], value_set=select_traces(spans, sampling)))


def sample_logs(logs: pa.Table, sampling: Sampling) -> pa.Table:
    """Return the log lines of the kept levels; lines without a level are kept."""
    if not sampling.log_levels:
        return logs
    levels = logs["level"].cast(pa.string())
    keep = pc.or_kleene(pc.is_null(levels), pc.is_in(levels, value_set=pa.array(sampling.log_levels)))
    return logs.filter(keep)


def request_counts(scheduled_ns: np.ndarray, start_ns: int, end_ns: int, step_ns: int) -> list[tuple[int, int, int]]:
    """Return the start, the end and the number of due requests of each step of a window."""
    edges = [*range(start_ns, end_ns, step_ns), end_ns]
    counts, _ = np.histogram(scheduled_ns, edges)
    return [(edges[index], edges[index + 1], int(count)) for index, count in enumerate(counts)]
