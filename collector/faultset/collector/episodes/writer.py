"""Writing a finished episode into its folder in the dataset: telemetry, context and truth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from faultset.collector.episodes.records import EpisodeRecord, ViewBounds
from faultset.collector.platforms.api.capabilities import host_load
from faultset.collector.platforms.api.platform import EpisodePlatform
from faultset.collector.platforms.journal.journal import Journal
from faultset.collector.verdicts.sli import as_seen_at
from faultset.collector.verdicts.verdict import Judgement, judge
from faultset.datasets.format.context import EpisodeContext
from faultset.datasets.format.episodes import EPISODES, INCOMPLETE, EpisodeWriter
from faultset.datasets.format.run_digests import WRITTEN, run_digest
from faultset.datasets.format.schemas import TABLES, time_column, without_episode
from faultset.datasets.views import EpisodeView


def _finished(batch: pa.RecordBatch, end_ns: int) -> pa.RecordBatch:
    """Keep the spans that had ended by the end of the view: a later end would tell when the fault was undone."""
    ends = batch["time"].cast(pa.int64()).to_numpy() + batch["duration_ns"].to_numpy()
    return batch.filter(pa.array(ends < end_ns))


def _table(platform: EpisodePlatform, name: str, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
    for batch in platform.sources[name].snapshot(start_ns, end_ns) if name in platform.sources else ():
        yield _finished(batch, end_ns) if name == "spans" else batch


def _seen_requests(requests: pa.Table, end_ns: int) -> pa.Table:
    schema = without_episode(TABLES["requests"])
    frame = as_seen_at(requests.to_pandas(), end_ns)
    return pa.Table.from_pandas(frame, schema=schema, preserve_index=False)


def write_episode(
    root: Path, record: EpisodeRecord, bounds: ViewBounds, platform: EpisodePlatform, journal: Journal
) -> Judgement:
    """Write the episode's telemetry, context and truth into the dataset and return the verdict.

    The view holds what was known at its end: later answers to requests and spans that were still open are left out.

    Parameters
    ----------
    root
        The dataset's folder.
    journal
        The episode's journal, which becomes part of the truth.
    """
    plan, app = record.plan, platform.app
    with EpisodeWriter(root, plan.episode) as writer:
        schema = without_episode(TABLES["requests"])
        requests = pa.Table.from_batches(_table(platform, "requests", bounds.start_ns, bounds.end_ns), schema=schema)
        platform.stop_load()
        written = {"requests": writer.write_table("requests", [_seen_requests(requests, bounds.end_ns)])}
        for name in ("metrics", "spans", "logs", "events", "objects"):
            written[name] = writer.write_table(name, _table(platform, name, bounds.start_ns, bounds.end_ns))
        times = {name: rows[time_column(name)] for name, rows in written.items()}
        del written
        writer.write_context(
            EpisodeContext(
                episode=plan.episode,
                app=plan.app,
                platform=plan.platform,
                view_start_ns=bounds.start_ns,
                view_end_ns=bounds.end_ns,
                reference_end_ns=bounds.reference_end_ns,
                source_intervals_s={name: source.interval_s for name, source in platform.sources.items()},
                services=tuple(app.services),
                calls=tuple(app.calls),
                workload_entry=app.entry[0],
            )
        )
        view = EpisodeView(root / EPISODES / f"{plan.episode}{INCOMPLETE}")
        judgement = judge(
            requests.to_pandas(),
            view.wide(plan.step_s),
            targets=(plan.target,) if plan.target else tuple(app.services),
            start_ns=bounds.start_ns,
            reference_end_ns=bounds.reference_end_ns,
            onset_ns=record.inject_start_ns or bounds.end_ns,
            end_ns=bounds.end_ns,
        )
        label = _label(record, bounds, platform, judgement)
        digest = run_digest(times, view_start_ns=bounds.start_ns, inject_start_ns=label["inject_start"])
        journal.note(WRITTEN, digest=digest)
        writer.write_truth(label, [*record.evidence, *judgement.evidence], journal.path)
        writer.commit()
    return judgement


def _label(
    record: EpisodeRecord, bounds: ViewBounds, platform: EpisodePlatform, judgement: Judgement
) -> dict[str, Any]:
    plan, fault = record.plan, record.fault
    causes: list[dict[str, Any]] = []
    if fault and plan.target:
        accepted = [plan.target, *fault.also_accepted(platform.app, plan.target)]
        cause = {"kind": fault.root_cause_kind, "name": plan.target, "service": plan.target, "accepted": accepted}
        causes = [cause]
    instants = {
        "inject_start": record.inject_start_ns,
        "inject_done": record.inject_done_ns,
        "effective": record.effective_ns,
        "recover_start": record.recover_start_ns,
        "recover_done": record.recover_done_ns,
        "healthy_again": record.healthy_again_ns,
        "first_manifest": judgement.first_manifest_ns,
    }
    if fault is None:
        instants = dict.fromkeys(instants)
    return {
        "fault": plan.fault,
        "no_fault_kind": plan.no_fault_kind,
        "targets": [plan.target] if plan.target else [],
        "root_causes": causes,
        "system_level": fault.system_level if fault else None,
        "fault_type": fault.fault_type if fault else None,
        "paper_number": fault.paper_number if fault else None,
        "category": fault.category if fault else None,
        "parameters": record.parameters,
        **instants,
        "view_start": bounds.start_ns,
        "view_end": bounds.end_ns,
        "reference_end": bounds.reference_end_ns,
        "verdict": judgement.verdict if fault else "none",
        "profile": plan.profile,
        "workload": {"mix": plan.mix, "rate_rps": plan.rate_rps},
        "seed": plan.seed,
        "host": {**host_load(platform).as_record(), "parallel": record.parallel, "durations_s": record.durations_s},
        "clock_offsets": {table: round(1e9 * offset_s) for table, offset_s in platform.clock_offsets_s().items()},
    }
