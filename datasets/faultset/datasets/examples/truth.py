"""The truth of a synthetic episode."""

from __future__ import annotations

import json
from typing import Any

from faultset.core.times import SECOND_NS
from faultset.datasets.examples.scenario import Scenario


def label_of(scenario: Scenario) -> dict[str, Any]:
    """Return the label of an episode."""
    faulty = scenario.fault is not None
    cause = {"kind": "Deployment", "name": scenario.target, "service": scenario.target, "accepted": [scenario.target]}
    return {
        "fault": scenario.fault,
        "no_fault_kind": None if faulty else "plain",
        "targets": [scenario.target] if faulty else [],
        "root_causes": [cause] if faulty else [],
        "system_level": "Hardware" if faulty else None,
        "fault_type": "Operation Error" if faulty else None,
        "paper_number": None,
        "category": "symptomatic" if faulty else None,
        "parameters": {"share": 0.6} if scenario.fault == "cpu-hog" else {},
        "inject_start": scenario.onset if faulty else None,
        "inject_done": scenario.onset + 20_000_000 if faulty else None,
        "effective": scenario.onset + SECOND_NS if faulty else None,
        "recover_start": scenario.end + SECOND_NS if faulty else None,
        "recover_done": scenario.end + 2 * SECOND_NS if faulty else None,
        "healthy_again": scenario.end + 10 * SECOND_NS if faulty else None,
        "view_start": scenario.start,
        "view_end": scenario.end,
        "reference_end": scenario.reference_end,
        "verdict": "manifest" if faulty else "none",
        "first_manifest": scenario.onset + 2 * SECOND_NS if faulty else None,
        "profile": "custom",
        "workload": {"name": "synthetic", "rate_rps": 5.0},
        "seed": int(scenario.rng.integers(0, 2**31)),
        "host": {"parallel": 1},
        "clock_offsets": json.dumps({}),
    }


def evidence_of(scenario: Scenario) -> list[dict[str, Any]]:
    """Return the checks that would have been made."""
    if scenario.fault is None:
        return []
    return [
        {
            "check": "injection",
            "subject": f"Deployment/{scenario.target}",
            "time": scenario.onset + SECOND_NS,
            "passed": True,
            "statistic": None,
            "p_value": None,
            "detail": "synthetic",
        }
    ]
