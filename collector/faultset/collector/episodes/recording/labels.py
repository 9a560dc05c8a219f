"""The label of an episode: what was injected, when, and what came of it."""

from __future__ import annotations

from typing import Any

from faultset.collector.episodes.recording.contexts import workload
from faultset.collector.episodes.records import EpisodeRecord, FaultRecord, ViewBounds
from faultset.collector.faults.registry import FaultyObject
from faultset.collector.platforms.base import EpisodePlatform
from faultset.collector.platforms.impairments import Course, course_of
from faultset.collector.spec.app import AppSpec
from faultset.collector.verdicts.verdict import Judgement
from faultset.datasets.format.labels import joined


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
