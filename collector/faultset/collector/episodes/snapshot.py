"""From a finished episode on a platform to its folder in the dataset."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from faultset.collector.episodes.state_machine import EpisodeMachine
from faultset.collector.faults.registry import FaultSpec
from faultset.collector.plans.plan import Plan
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.platforms.journal.journal import Journal
from faultset.collector.verdicts.sli import as_seen_at
from faultset.collector.verdicts.verdict import Judgement, judge
from faultset.datasets.format.context import EpisodeContext
from faultset.datasets.format.episodes import EPISODES, INCOMPLETE, EpisodeWriter
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.views import EpisodeView

if TYPE_CHECKING:
    from faultset.collector.episodes.runner import Course


def _finished(batch: pa.RecordBatch, end_ns: int) -> pa.RecordBatch:
    """Keep the spans that had ended by the end of the view: a later end would tell when the fault was undone."""
    ends = batch["time"].cast(pa.int64()).to_numpy() + batch["duration_ns"].to_numpy()
    return batch.filter(pa.array(ends < end_ns))


def _table(platform: Platform, name: str, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
    for source in platform.sources():
        if source.table != name:
            continue
        for batch in source.snapshot(start_ns, end_ns):
            yield _finished(batch, end_ns) if name == "spans" else batch


def _seen_requests(requests: pa.Table, end_ns: int) -> pa.Table:
    schema = pa.schema([field for field in TABLES["requests"] if field.name != "episode"])
    frame = as_seen_at(requests.to_pandas(), end_ns)
    return pa.Table.from_pandas(frame, schema=schema, preserve_index=False)


def collect(
    plan: Plan,
    fault: FaultSpec | None,
    platform: Platform,
    journal: Journal,
    machine: EpisodeMachine,
    course: Course,
    root: Path,
    parallel: int,
) -> Judgement:
    """Write the episode's telemetry, context and truth; return the verdict.

    The view holds what was known at its end: later answers to requests and spans that were still open are left out.
    """
    start_ns, end_ns = machine.view_start_ns, machine.view_end_ns
    app = platform.app
    with EpisodeWriter(root, plan.episode) as writer:
        schema = pa.schema([field for field in TABLES["requests"] if field.name != "episode"])
        requests = pa.Table.from_batches(_table(platform, "requests", start_ns, end_ns), schema=schema)
        platform.stop_load()
        writer.write_table("requests", [_seen_requests(requests, end_ns)])
        for name in ("metrics", "spans", "logs", "events", "objects"):
            writer.write_table(name, _table(platform, name, start_ns, end_ns))
        writer.write_context(
            EpisodeContext(
                episode=plan.episode,
                app=plan.app,
                platform=plan.platform,
                view_start_ns=start_ns,
                view_end_ns=end_ns,
                reference_end_ns=machine.reference_end_ns,
                source_intervals_s={source.table: source.interval_s for source in platform.sources()},
                services=tuple(app.services),
                calls=tuple(app.calls),
                workload_entry=app.entry[0],
            )
        )
        onset_ns = course.inject_start_ns or end_ns
        view = EpisodeView(root / EPISODES / f"{plan.episode}{INCOMPLETE}")
        verdict = judge(
            requests.to_pandas(),
            view.wide(plan.step_s),
            targets=(plan.target,) if plan.target else tuple(app.services),
            start_ns=start_ns,
            reference_end_ns=machine.reference_end_ns,
            onset_ns=onset_ns,
            end_ns=end_ns,
        )
        label = _label(plan, fault, platform, machine, course, verdict, parallel)
        writer.write_truth(label, [*course.evidence, *verdict.evidence], journal.path)
        writer.commit()
    return verdict


def _label(
    plan: Plan,
    fault: FaultSpec | None,
    platform: Platform,
    machine: EpisodeMachine,
    course: Course,
    verdict: Judgement,
    parallel: int,
) -> dict[str, Any]:
    causes: list[dict[str, Any]] = []
    if fault and plan.target:
        accepted = [plan.target, *fault.also_accepted(platform.app, plan.target)]
        cause = {"kind": fault.root_cause_kind, "name": plan.target, "service": plan.target, "accepted": accepted}
        causes = [cause]
    instants = {
        "inject_start": course.inject_start_ns,
        "inject_done": course.inject_done_ns,
        "effective": course.effective_ns,
        "recover_start": course.recover_start_ns,
        "recover_done": course.recover_done_ns,
        "healthy_again": course.healthy_again_ns,
        "first_manifest": verdict.first_manifest_ns,
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
        "parameters": course.parameters,
        **instants,
        "view_start": machine.view_start_ns,
        "view_end": machine.view_end_ns,
        "reference_end": machine.reference_end_ns,
        "verdict": verdict.verdict if fault else "none",
        "profile": plan.profile,
        "workload": {"mix": plan.mix, "rate_rps": plan.rate_rps},
        "seed": plan.seed,
        "host": {**platform.host_load(), "parallel": parallel, "durations_s": course.durations_s},
        "clock_offsets": {table: round(1e9 * offset_s) for table, offset_s in platform.clock_offsets_s().items()},
    }
