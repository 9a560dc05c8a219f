"""Recording an episode: what a method may know of it, its label, and its folder in the dataset."""

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

from faultset.collector.episodes.health import RequestsMoved
from faultset.collector.episodes.records import EpisodeRecord, FaultRecord, ViewBounds
from faultset.collector.faults.registry import FaultyObject
from faultset.collector.plans.plan import Plan
from faultset.collector.platforms.base import EpisodePlatform
from faultset.collector.platforms.impairments import Course, course_of
from faultset.collector.platforms.journal import Journal
from faultset.collector.sources.contract import EarlyReader, NotingSource
from faultset.collector.sources.recorder import SourceRecorder, SourceRows
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.reachability import services_reached
from faultset.collector.verdicts.client_requests import as_seen_at
from faultset.collector.verdicts.latent import threshold_for
from faultset.collector.verdicts.verdict import Judgement, judge_episode
from faultset.core.times import step_seconds
from faultset.datasets.format.context import EpisodeContext
from faultset.datasets.format.episodes import EPISODES, INCOMPLETE, WRITTEN, EpisodeWriter, run_digest
from faultset.datasets.format.labels import joined
from faultset.datasets.format.schemas import TABLES, time_column, without_episode
from faultset.datasets.metrics.roles import known_roles
from faultset.datasets.views import EpisodeView

if TYPE_CHECKING:
    import pandas as pd


def episode_context(
    record: EpisodeRecord, platform: EpisodePlatform, bounds: ViewBounds, added: Sequence[SourceRows] = ()
) -> EpisodeContext:
    """Return what is known beforehand of an episode with the given view; `added` is of added sources."""
    plan, app = record.plan, platform.app
    return EpisodeContext(
        episode=plan.episode,
        app=plan.app,
        platform=plan.platform,
        view_start_ns=bounds.start_ns,
        view_end_ns=bounds.end_ns,
        reference_end_ns=bounds.reference_end_ns,
        source_intervals_s={name: source.interval_s for name, source in platform.sources.items()}
        | {one.spec.table: one.interval_s for one in added if one.spec.added_table},
        services=tuple(app.services),
        calls=tuple(app.calls),
        workload_entry=app.entry[0],
        metric_roles=tuple(asdict(role) for one in added for role in one.spec.metric_roles),
        added_tables=tuple(one.spec.added_table for one in added if one.spec.added_table),
        workload=workload(plan),
        stores=record.store_servers,
    )


def workload(plan: Plan) -> dict[str, Any]:
    """Return what the load of an episode is."""
    return {"mix": plan.mix, "rate_rps": plan.rate_rps, **plan.traffic.as_record()}


def recorded_rows(platform: EpisodePlatform, table: str, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table that were known at the end of a window."""
    for batch in platform.sources[table].snapshot(start_ns, end_ns) if table in platform.sources else ():
        yield finished(batch, end_ns) if table == "spans" else batch


def read_early(platform: EpisodePlatform, bounds: ViewBounds, fault_ns: int | None) -> None:
    """Begin to read what was recorded before the fault; within the view nothing else may use the platform."""
    for source in platform.sources.values():
        if isinstance(source, EarlyReader):
            source.read_early(bounds.start_ns, bounds.end_ns, fault_ns or bounds.end_ns)


def finished(batch: pa.RecordBatch, end_ns: int) -> pa.RecordBatch:
    """Keep the spans that had ended by the end of the view: a later end would tell when the fault was undone."""
    ends = batch["time"].cast(pa.int64()).to_numpy() + batch["duration_ns"].to_numpy()
    return batch.filter(pa.array(ends < end_ns))


class LiveRecording:
    """What has been recorded of an episode that goes on.

    Parameters
    ----------
    bounds
        Returns the view's bounds, given its end.
    folder
        Where tables lie while somebody looks at them; a new one at the first look when None.
    """

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
        """Return the view that ends now; the one before can no longer be read."""
        self.close()
        self._scratch = tempfile.TemporaryDirectory(prefix="faultset-live-", dir=self._folder)
        self._writer = EpisodeWriter(self._scratch.name, self._record.plan.episode, quick=True).__enter__()
        bounds = self._bounds(now_ns)
        self._writer.write_context(episode_context(self._record, self._platform, bounds))
        return _LazyView(
            self._writer, lambda table: recorded_rows(self._platform, table, bounds.start_ns, bounds.end_ns)
        )

    def close(self) -> None:
        """Remove what the last view read from."""
        if self._writer is not None:
            self._writer.__exit__(None, None, None)
        if self._scratch is not None:
            self._scratch.cleanup()
        self._writer = self._scratch = None


class _LazyView(EpisodeView):
    """A view whose tables are written when they are asked for."""

    def __init__(self, writer: EpisodeWriter, rows: Callable[[str], Iterable[pa.RecordBatch]]):
        super().__init__(writer.folder)
        self._writer, self._rows = writer, rows
        self._made: set[str] = set()

    def table(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        filters: pc.Expression | list[Any] | None = None,
    ) -> pa.Table:
        self._schema(name)
        self._make(name)
        return super().table(name, columns, filters)

    def wide(self, step_s: float | str = 1.0, roles: Iterable[str] | None = None) -> pd.DataFrame:
        self._make("metrics")
        return self._made_wide(step_seconds(step_s), None if roles is None else known_roles(roles))

    def _make(self, name: str) -> None:
        if name not in self._made:
            self._writer.write_table(name, self._rows(name))
            self._made.add(name)


def label_of(
    record: EpisodeRecord, bounds: ViewBounds, platform: EpisodePlatform, judgement: Judgement
) -> dict[str, Any]:
    """Return the row of an episode's label, as `EpisodeWriter.write_truth` takes it."""
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
    specs = [one.spec for one in faults]
    return {
        "fault": joined(spec.name for spec in specs) or None,
        "no_fault_kind": plan.no_fault_kind,
        "targets": [one.target for one in faults],
        "root_causes": [_cause(one, platform.app) for one in faults],
        "system_level": joined(spec.system_level for spec in specs) or None,
        "fault_type": joined(spec.fault_type for spec in specs) or None,
        "paper_number": specs[0].paper_number if len(specs) == 1 else None,
        "category": joined(spec.category for spec in specs) or None,
        "parameters": record.parameters,
        **(instants if faults else dict.fromkeys(instants)),
        "view_start": bounds.start_ns,
        "view_end": bounds.end_ns,
        "reference_end": bounds.reference_end_ns,
        "verdict": judgement.verdict if faults else "none",
        "profile": plan.profile,
        "workload": workload(plan),
        "seed": plan.seed,
        "host": {**platform.host_load().as_record(), "parallel": record.parallel, "durations_s": record.durations_s},
        "clock_offsets": {table: round(1e9 * offset_s) for table, offset_s in platform.clock_offsets_s().items()},
        "faults": [_labelled(one, record.recover_start_ns or bounds.end_ns) for one in faults] or None,
    }


def _cause(one: FaultRecord, app: AppSpec) -> dict[str, Any]:
    cause = one.spec.object_at_fault(app, one.target)
    if one.spec.at_one_pod and "pod" in one.parameters:
        cause = FaultyObject("Pod", one.parameters["pod"])
    accepted = one.spec.accepted_names(app, one.target)
    return {**cause._asdict(), "service": one.target, "accepted": [*accepted]}


def _labelled(one: FaultRecord, end_ns: int) -> dict[str, Any]:
    course = course_of(one.parameters) if one.spec.schedules else Course()
    begin_ns = one.inject_done_ns if course.changes else one.inject_start_ns
    return {
        "fault": one.spec.name,
        "target": one.target,
        "system_level": one.spec.system_level,
        "fault_type": one.spec.fault_type,
        "paper_number": one.spec.paper_number,
        "category": one.spec.category,
        "parameters": one.parameters,
        "inject_start": one.inject_start_ns,
        "inject_done": one.inject_done_ns,
        "effective": one.effective_ns,
        "intervals": [
            {
                "begin": interval.begin_ns,
                "end": interval.end_ns,
                "first_intensity": interval.first_intensity,
                "last_intensity": interval.last_intensity,
            }
            for interval in course.intervals(begin_ns or end_ns, end_ns)
        ],
    }


_log = logging.getLogger(__name__)


def _added(added: Sequence[SourceRows], name: str, end_ns: int) -> Iterator[pa.RecordBatch]:
    for one in added:
        if one.spec.table == name:
            for batch in one.rows.to_batches():
                yield finished(batch, end_ns) if name == "spans" else batch


def _seen_requests(requests: pa.Table, end_ns: int) -> pa.Table:
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

    The view holds what was known at its end: later answers to requests and spans that were still open are left out.

    Parameters
    ----------
    root
        The dataset's folder.
    journal
        The episode's journal, which becomes part of the truth.
    sources
        The sources that the campaign adds; what failed of them is part of the evidence.
    is_busy
        Whether the host was short of CPU during the view.

    Raises
    ------
    HostTooBusy
        Client requests moved by what the fault cannot have caused; nothing is written.
    """
    plan = record.plan
    added = sources.read(bounds.start_ns, bounds.end_ns)
    for one in added:
        record.add_evidence("source", one.spec.name, not one.failure, one.failure or f"{len(one.rows)} rows")
    added_tables = [one.spec.added_table for one in added if one.spec.added_table]
    with EpisodeWriter(root, plan.episode, added_tables=added_tables) as writer:
        schema = without_episode(TABLES["requests"])
        answered = recorded_rows(platform, "requests", bounds.start_ns, bounds.end_ns)
        requests = pa.Table.from_batches(answered, schema=schema)
        platform.stop_load()
        written = {"requests": writer.write_table("requests", [_seen_requests(requests, bounds.end_ns)])}
        # samples come last: a cluster's exporters are late, and the other tables are read meanwhile
        for name in ("spans", "logs", "events", "objects", "metrics"):
            own = recorded_rows(platform, name, bounds.start_ns, bounds.end_ns)
            written[name] = writer.write_table(name, chain(own, _added(added, name, bounds.end_ns)))
        for table in added_tables:
            written[table.name] = writer.write_table(table.name, _added(added, table.name, bounds.end_ns))
        for table, source in platform.sources.items():
            for note in source.notes if isinstance(source, NotingSource) else ():
                record.add_evidence("source", table, False, note)
        _log.info("telemetry is read: %s", ", ".join(f"{len(rows)} {name}" for name, rows in written.items()))
        times = {name: rows[time_column(name)] for name, rows in written.items()}
        del written
        writer.write_context(episode_context(record, platform, bounds, added))
        view = EpisodeView(root / EPISODES / f"{plan.episode}{INCOMPLETE}")
        judgement = judge_episode(
            view,
            plan,
            onset_ns=record.inject_start_ns or bounds.end_ns,
            limit=threshold_for(plan.app, plan.platform, plan.step_s, plan.traffic.name),
            rolled_out=record.rolled_out_services,
            services_reached=services_reached(platform.app),
        )
        if reason := reason_to_discard(judgement, is_busy=is_busy):
            raise RequestsMoved(plan.title, reason)
        label = label_of(record, bounds, platform, judgement)
        digest = run_digest(times, view_start_ns=bounds.start_ns, inject_start_ns=label["inject_start"])
        journal.note(WRITTEN, digest=digest)
        writer.write_truth(label, [*record.evidence, *judgement.evidence], journal.path)
        writer.commit()
    _log.info("written, verdict %s", label["verdict"])
    return judgement


def reason_to_discard(judgement: Judgement, *, is_busy: bool) -> str:
    """Say why an episode is void, with or without a fault; empty when it is valid.

    Parameters
    ----------
    is_busy
        Whether the host was short of CPU during the view.
    """
    if not judgement.void_reason and is_busy and judgement.impact.is_latency_alone:
        return "only latencies moved, while the host was short of CPU"
    return judgement.void_reason
