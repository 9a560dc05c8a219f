"""Record an episode: its context for methods, its label, and its folder in the dataset."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from faultset.collector.episodes.health import UnexplainedRequestChange
from faultset.collector.episodes.records import EpisodeRecord, FaultRecord, ViewBounds
from faultset.collector.faults.registry import FaultyObject
from faultset.collector.plans.plan import Plan
from faultset.collector.platforms.base import EpisodePlatform
from faultset.collector.platforms.impairments import Course, parse_course
from faultset.collector.platforms.journal import Journal
from faultset.collector.sources.contract import EarlyReader, SourceWithNotes
from faultset.collector.sources.recorder import SourceRecorder, SourceRows
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.routes import services_reached
from faultset.collector.verdicts.client_requests import as_seen_at
from faultset.collector.verdicts.latent import threshold_for
from faultset.collector.verdicts.verdict import Judgement, judge_episode
from faultset.core.printable import count_text
from faultset.core.times import step_seconds
from faultset.datasets.format.context import EpisodeContext
from faultset.datasets.format.episodes import EPISODES, INCOMPLETE, WRITTEN, EpisodeWriter, run_digest
from faultset.datasets.format.labels import join_distinct
from faultset.datasets.format.schemas import TABLES, time_column, without_episode
from faultset.datasets.metrics.roles import parse_roles
from faultset.datasets.views import EpisodeView

if TYPE_CHECKING:
    import pandas as pd


def build_context(
    record: EpisodeRecord, platform: EpisodePlatform, bounds: ViewBounds, added: Sequence[SourceRows] = ()
) -> EpisodeContext:
    """Return the context of an episode with a given view; `added` are the rows of added sources."""
    facts = describe_system(record, platform)
    facts["source_intervals_s"] |= {rows.spec.table: rows.interval_s for rows in added if rows.spec.added_table}
    return EpisodeContext(
        episode=record.plan.episode,
        view_start_ns=bounds.start_ns,
        view_end_ns=bounds.end_ns,
        reference_end_ns=bounds.reference_end_ns,
        metric_roles=tuple(asdict(role) for rows in added for role in rows.spec.metric_roles),
        added_tables=tuple(rows.spec.added_table for rows in added if rows.spec.added_table),
        **facts,
    )


def describe_system(record: EpisodeRecord, platform: EpisodePlatform) -> dict[str, Any]:
    """Return the facts about the running application that contexts of episodes and recordings share."""
    plan, app = record.plan, platform.app
    return {
        "app": plan.app,
        "platform": plan.platform,
        "source_intervals_s": {name: source.interval_s for name, source in platform.sources.items()},
        "services": tuple(app.services),
        "calls": tuple(app.calls),
        "workload_entry": app.entry[0],
        "workload": describe_workload(plan),
        "stores": record.store_servers,
    }


def describe_workload(plan: Plan) -> dict[str, Any]:
    return {"mix": plan.mix, "rate_rps": plan.rate_rps, **plan.traffic.as_record()}


def recorded_rows(platform: EpisodePlatform, table: str, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table as known at the end of a window."""
    for batch in platform.sources[table].snapshot(start_ns, end_ns) if table in platform.sources else ():
        yield drop_open_spans(batch, end_ns) if table == "spans" else batch


def read_early(platform: EpisodePlatform, bounds: ViewBounds, fault_ns: int | None) -> None:
    """Start reading the view's rows from before the fault in the background, for sources that support it."""
    for source in platform.sources.values():
        if isinstance(source, EarlyReader):
            source.read_early(bounds.start_ns, bounds.end_ns, fault_ns or bounds.end_ns)


def drop_open_spans(batch: pa.RecordBatch, end_ns: int) -> pa.RecordBatch:
    """Drop spans that end after the view: their end would reveal when the fault was undone."""
    ends = batch["time"].cast(pa.int64()).to_numpy() + batch["duration_ns"].to_numpy()
    return batch.filter(pa.array(ends < end_ns))


class LiveRecording:
    """Telemetry of a running episode; `bounds` returns the view's bounds for a given end."""

    def __init__(
        self,
        record: EpisodeRecord,
        platform: EpisodePlatform,
        bounds: Callable[[int], ViewBounds],
        folder: Path | None = None,
    ):
        self._record, self._platform, self._bounds, self._folder = record, platform, bounds, folder
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._writer: EpisodeWriter | None = None

    def up_to(self, now_ns: int) -> EpisodeView:
        """Return the view that ends at `now_ns`; views returned earlier become invalid."""
        self.close()
        self._scratch = tempfile.TemporaryDirectory(prefix="faultset-live-", dir=self._folder)
        self._writer = EpisodeWriter(self._scratch.name, self._record.plan.episode, quick=True).__enter__()
        bounds = self._bounds(now_ns)
        self._writer.write_context(build_context(self._record, self._platform, bounds))
        return _LazyView(
            self._writer, lambda table: recorded_rows(self._platform, table, bounds.start_ns, bounds.end_ns)
        )

    def close(self) -> None:
        """Remove the files of the last view."""
        if self._writer is not None:
            self._writer.__exit__(None, None, None)
        if self._scratch is not None:
            self._scratch.cleanup()
        self._writer = self._scratch = None


class _LazyView(EpisodeView):
    """A view that writes each table on first use."""

    def __init__(self, writer: EpisodeWriter, rows: Callable[[str], Iterable[pa.RecordBatch]]):
        super().__init__(writer.folder)
        self._writer, self._rows = writer, rows
        self._written: set[str] = set()

    def table(
        self, name: str, columns: Sequence[str] | None = None, filters: pc.Expression | list[Any] | None = None
    ) -> pa.Table:
        self._schema(name)
        self._write(name)
        return super().table(name, columns, filters)

    def wide(self, step_s: float | str = 1.0, roles: Iterable[str] | None = None) -> pd.DataFrame:
        self._write("metrics")
        return self._make_wide(step_seconds(step_s), None if roles is None else parse_roles(roles))

    def _write(self, name: str) -> None:
        if name not in self._written:
            self._writer.write_table(name, self._rows(name))
            self._written.add(name)


def build_label(
    record: EpisodeRecord, bounds: ViewBounds, platform: EpisodePlatform, judgement: Judgement
) -> dict[str, Any]:
    """Return the row of an episode's label for `EpisodeWriter.write_truth`."""
    plan, faults = record.plan, record.faults
    instants = {
        "inject_start": record.inject_start_ns,
        "inject_done": record.inject_done_ns,
        "effective": record.effective_ns,
        "recover_start": record.recover_start_ns,
        "recover_done": record.recover_done_ns,
        "healthy_again": record.healthy_again_ns,
        "first_manifest": judgement.first_manifest_ns,
    }
    specs = [fault.spec for fault in faults]
    return {
        "fault": join_distinct(spec.name for spec in specs) or None,
        "no_fault_kind": plan.no_fault_kind,
        "targets": [fault.target for fault in faults],
        "root_causes": [_build_cause(fault, platform.app) for fault in faults],
        "system_level": join_distinct(spec.system_level for spec in specs) or None,
        "fault_type": join_distinct(spec.fault_type for spec in specs) or None,
        "paper_number": specs[0].paper_number if len(specs) == 1 else None,
        "category": join_distinct(spec.category for spec in specs) or None,
        "parameters": record.parameters,
        **(instants if faults else dict.fromkeys(instants)),
        "view_start": bounds.start_ns,
        "view_end": bounds.end_ns,
        "reference_end": bounds.reference_end_ns,
        "verdict": judgement.verdict if faults else "none",
        "profile": plan.profile,
        "workload": describe_workload(plan),
        "seed": plan.seed,
        "host": {
            **platform.measure_host_load().as_record(),
            "parallel": record.parallel,
            "durations_s": record.durations_s,
        },
        "clock_offsets": {table: round(1e9 * offset_s) for table, offset_s in platform.clock_offsets_s().items()},
        "faults": [_describe_fault(fault, record.recover_start_ns or bounds.end_ns) for fault in faults] or None,
    }


def _build_cause(fault: FaultRecord, app: AppSpec) -> dict[str, Any]:
    cause = fault.spec.object_at_fault(app, fault.target)
    if fault.spec.at_one_pod and "pod" in fault.parameters:
        cause = FaultyObject("Pod", fault.parameters["pod"])
    accepted = fault.spec.accepted_names(app, fault.target)
    return {**cause._asdict(), "service": fault.target, "accepted": [*accepted]}


def _describe_fault(fault: FaultRecord, end_ns: int) -> dict[str, Any]:
    course = parse_course(fault.parameters) if fault.spec.schedules else Course()
    start_ns = fault.inject_done_ns if course.changes else fault.inject_start_ns
    return {
        "fault": fault.spec.name,
        "target": fault.target,
        "system_level": fault.spec.system_level,
        "fault_type": fault.spec.fault_type,
        "paper_number": fault.spec.paper_number,
        "category": fault.spec.category,
        "parameters": fault.parameters,
        "inject_start": fault.inject_start_ns,
        "inject_done": fault.inject_done_ns,
        "effective": fault.effective_ns,
        "intervals": [
            {
                "begin": interval.begin_ns,
                "end": interval.end_ns,
                "first_intensity": interval.first_intensity,
                "last_intensity": interval.last_intensity,
            }
            for interval in course.intervals(start_ns or end_ns, end_ns)
        ],
    }


_log = logging.getLogger(__name__)


def _added_rows(added: Sequence[SourceRows], name: str, end_ns: int) -> Iterator[pa.RecordBatch]:
    for rows in added:
        if rows.spec.table == name:
            for batch in rows.rows.to_batches():
                yield drop_open_spans(batch, end_ns) if name == "spans" else batch


def _hide_later_responses(requests: pa.Table, end_ns: int) -> pa.Table:
    schema = without_episode(TABLES["requests"])
    frame = as_seen_at(requests.to_pandas(), end_ns)
    return pa.Table.from_pandas(frame, schema=schema, preserve_index=False)


def write_episode(
    root: Path,
    record: EpisodeRecord,
    bounds: ViewBounds,
    platform: EpisodePlatform,
    journal: Journal,
    sources: SourceRecorder,
    *,
    is_busy: bool = False,
) -> Judgement:
    """Write the episode's telemetry, context and truth into the dataset and return the verdict.

    The view excludes later responses to requests and open spans. `is_busy` says whether the host was short of CPU
    during the view. Raises HostTooBusy if client requests changed in a way that the fault cannot explain; then nothing
    is written.
    """
    plan = record.plan
    added = sources.read(bounds.start_ns, bounds.end_ns)
    added_tables = [rows.spec.added_table for rows in added if rows.spec.added_table]
    with EpisodeWriter(root, plan.episode, added_tables=added_tables) as writer:
        times = _write_telemetry(writer, bounds, platform, added)
        _add_source_evidence(record, platform, added)
        writer.write_context(build_context(record, platform, bounds, added))
        view = EpisodeView(root / EPISODES / f"{plan.episode}{INCOMPLETE}")
        judgement = _judge(view, record, bounds, platform)
        if reason := reason_to_discard(judgement, is_busy=is_busy):
            raise UnexplainedRequestChange(plan.title, reason)
        label = build_label(record, bounds, platform, judgement)
        digest = run_digest(times, view_start_ns=bounds.start_ns, inject_start_ns=label["inject_start"])
        journal.note(WRITTEN, digest=digest)
        writer.write_truth(label, [*record.evidence, *judgement.evidence], journal.path)
        writer.commit()
    _log.info("written, verdict %s", label["verdict"])
    return judgement


def _judge(view: EpisodeView, record: EpisodeRecord, bounds: ViewBounds, platform: EpisodePlatform) -> Judgement:
    plan = record.plan
    return judge_episode(
        view,
        plan,
        onset_ns=record.inject_start_ns or bounds.end_ns,
        limit=threshold_for(plan.app, plan.platform, plan.step_s, plan.traffic.name),
        rolled_out=record.rolled_out_services,
        services_reached=services_reached(platform.app),
    )


def _add_source_evidence(record: EpisodeRecord, platform: EpisodePlatform, added: Sequence[SourceRows]) -> None:
    """Add the number of rows or the failure of each added source, and the notes of all sources, as evidence."""
    for rows in added:
        record.add_evidence(
            "source", rows.spec.name, not rows.failure, rows.failure or count_text(len(rows.rows), "row")
        )
    for table, source in platform.sources.items():
        for note in source.notes if isinstance(source, SourceWithNotes) else ():
            record.add_evidence("source", table, False, note)


def _write_telemetry(
    writer: EpisodeWriter, bounds: ViewBounds, platform: EpisodePlatform, added: Sequence[SourceRows]
) -> dict[str, pa.ChunkedArray]:
    """Write all tables, stop the load, and return the times of each table's rows."""
    batches = recorded_rows(platform, "requests", bounds.start_ns, bounds.end_ns)
    requests = pa.Table.from_batches(batches, schema=without_episode(TABLES["requests"]))
    platform.stop_load()
    tables = {"requests": writer.write_table("requests", [_hide_later_responses(requests, bounds.end_ns)])}
    # metrics come last, because a cluster's exporters are late
    for name in ("spans", "logs", "events", "objects", "metrics"):
        rows = recorded_rows(platform, name, bounds.start_ns, bounds.end_ns)
        tables[name] = writer.write_table(name, chain(rows, _added_rows(added, name, bounds.end_ns)))
    for table in (rows.spec.added_table for rows in added if rows.spec.added_table):
        tables[table.name] = writer.write_table(table.name, _added_rows(added, table.name, bounds.end_ns))
    _log.info("telemetry is read: %s", ", ".join(f"{len(rows)} {name}" for name, rows in tables.items()))
    return {name: rows[time_column(name)] for name, rows in tables.items()}


def reason_to_discard(judgement: Judgement, *, is_busy: bool) -> str:
    """Return why an episode is void, with or without a fault; empty when it is valid."""
    if not judgement.void_reason and is_busy and judgement.impact.is_latency_alone:
        return "only latencies changed, while the host was short of CPU"
    return judgement.void_reason
