"""Writing a finished episode into its folder in the dataset: telemetry, context and truth."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from faultset.collector.episodes.harmless_changes import clients_may_notice
from faultset.collector.episodes.health import void_by_host
from faultset.collector.episodes.recording.contexts import episode_context, finished, recorded_rows
from faultset.collector.episodes.recording.labels import label_of
from faultset.collector.episodes.records import EpisodeRecord, ViewBounds
from faultset.collector.plans.plan import Plan
from faultset.collector.platforms.base import EpisodePlatform
from faultset.collector.platforms.journal import Journal
from faultset.collector.sources.contract import NotingSource
from faultset.collector.sources.recorder import SourceRecorder, SourceRows
from faultset.collector.spec.reachability import services_reached
from faultset.collector.verdicts.client_requests import ComparisonWindows, as_seen_at
from faultset.collector.verdicts.deliveries import SPAN_COLUMNS, deliveries
from faultset.collector.verdicts.latent import threshold_for
from faultset.collector.verdicts.verdict import Judgement, judge
from faultset.datasets.format.episodes import EPISODES, INCOMPLETE, EpisodeWriter
from faultset.datasets.format.run_digests import WRITTEN, run_digest
from faultset.datasets.format.schemas import TABLES, time_column, without_episode
from faultset.datasets.metrics.roles import Catalogue
from faultset.datasets.views import EpisodeView

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


def _messages(spans: pa.Table, healthy_until_ns: int) -> pd.DataFrame:
    of_queues = spans.filter(pc.field("kind").cast(pa.string()).isin(["producer", "consumer"]))
    return deliveries(of_queues.select(SPAN_COLUMNS).to_pandas(), healthy_until_ns=healthy_until_ns)


def _measured_by_platform(wide: pd.DataFrame, added: Sequence[SourceRows]) -> pd.DataFrame:
    """Leave out what added sources measured: verdicts of all campaigns are made from the same metrics."""
    roles = Catalogue(role for one in added for role in one.spec.metric_roles)
    names = [str(metric).partition("{")[0] for _, metric in wide.columns]
    return wide.loc[:, [roles.find(name) is None and roles.role_of(name) == "other" for name in names]]


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
    plan, app = record.plan, platform.app
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
        messages = _messages(written["spans"], bounds.reference_end_ns)
        times = {name: rows[time_column(name)] for name, rows in written.items()}
        del written
        writer.write_context(episode_context(record, platform, bounds, added))
        view = EpisodeView(root / EPISODES / f"{plan.episode}{INCOMPLETE}")
        rolled_out_services = record.rolled_out_services
        judgement = judge(
            requests.to_pandas(),
            _measured_by_platform(view.wide(plan.step_s), added),
            ComparisonWindows(
                start_ns=bounds.start_ns,
                reference_end_ns=bounds.reference_end_ns,
                onset_ns=record.inject_start_ns or bounds.end_ns,
                end_ns=bounds.end_ns,
            ),
            messages=messages,
            targets=[one.target for one in record.faults]
            or [name for name in app.services if name not in rolled_out_services],
            faulty=[one.target for one in record.faults],
            services_reached=services_reached(app),
            limit=threshold_for(plan.app, plan.platform, plan.step_s, plan.traffic.name),
            load_varies=not plan.traffic.pattern.is_constant,
        )
        _must_be_valid(plan, judgement, is_busy=is_busy, made=record.parameters)
        label = label_of(record, bounds, platform, judgement)
        digest = run_digest(times, view_start_ns=bounds.start_ns, inject_start_ns=label["inject_start"])
        journal.note(WRITTEN, digest=digest)
        writer.write_truth(label, [*record.evidence, *judgement.evidence], journal.path)
        writer.commit()
    _log.info("written, verdict %s", label["verdict"])
    return judgement


def _must_be_valid(plan: Plan, judgement: Judgement, *, is_busy: bool, made: Mapping[str, Any]) -> None:
    reason = judgement.void_reason
    is_felt = plan.no_fault_kind == "disturbed" or clients_may_notice(made)
    if not reason and is_busy and judgement.sli_fires and plan.no_fault_kind and not is_felt:
        reason = "client requests moved without a fault while the host was short of CPU"
    if reason:
        raise void_by_host(plan.title, reason)
