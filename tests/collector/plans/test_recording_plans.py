"""Plans of recordings: drawn from the seed, with gaps long enough to recover."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from faultset.collector.cli.collect import collect
from faultset.collector.faults.registry import faults
from faultset.collector.plans.campaign_plans import describe_campaign, plan_campaign, shorten_recording
from faultset.collector.plans.plan import Plan
from faultset.collector.plans.requests import make_request
from faultset.collector.plans.timeline import LENGTH_SPREAD, compute_min_gap_s, draw_recording_decoys, max_incidents
from faultset.core.errors import UsageError

FAULTS = ["target-port", "missing-service", "network-loss", "cpu-throttle"]


def plan(**options: Any) -> Plan:
    values = {"faults": FAULTS, "apps": ["hotel"], "recording_s": 4 * 3600.0, "incidents": 24, "seed": 5, **options}
    (planned,) = plan_campaign(make_request(**values))
    return planned


def test_incidents_fit_with_time_to_recover_between_them() -> None:
    planned = plan()
    assert planned.recording is not None
    incidents = planned.recording.incidents
    assert len(incidents) == 24
    assert Counter(incident.fault for incident in incidents) == dict.fromkeys(FAULTS, 6)
    gaps_s = [after.at_s - before.end_s for before, after in pairwise(incidents)]
    assert min(gaps_s) >= compute_min_gap_s(planned.phases) - 0.01
    assert np.std(gaps_s) > 10
    assert incidents[0].at_s >= planned.phases.baseline_s
    assert incidents[-1].end_s + compute_min_gap_s(planned.phases) <= planned.recording.duration_s + 0.01
    shares = [incident.length_s / planned.phases.fault_s for incident in incidents]
    assert 1 - LENGTH_SPREAD <= min(shares) < max(shares) <= 1 + LENGTH_SPREAD


def test_the_seed_decides_the_plan() -> None:
    assert plan() == plan()
    assert plan().recording != plan(seed=6).recording
    assert Plan.from_json(plan().to_json()) == plan()


def test_some_incidents_overlap_the_one_before_on_another_target() -> None:
    planned = plan(overlap=0.25)
    assert planned.recording is not None
    incidents = planned.recording.incidents
    pairs = [(before, after) for before, after in pairwise(incidents) if after.overlaps]
    assert len(pairs) == 6
    for before, after in pairs:
        assert before.at_s < after.at_s < before.end_s
        assert before.target != after.target
        assert not before.overlaps


def test_recordings_of_several_seeds_and_of_health() -> None:
    plans = plan_campaign(make_request(faults=FAULTS, apps=["hotel"], recording_s=3600.0, incidents=3, repeat=2))
    assert len({planned.episode for planned in plans}) == 2
    assert plans[0].recording != plans[1].recording
    assert describe_campaign(plans, 1).startswith("2 recordings of 2 hours in all, with 6 incidents, one at a time")
    rest = [shorten_recording(planned, 2700.0) for planned in plans]
    assert describe_campaign(rest, 1).startswith("2 recordings of 0.5 hours in all, with ")
    healthy = plan(incidents=0, faults=["noop"])
    assert healthy.recording is not None
    assert healthy.recording.incidents == ()


def test_every_fault_is_used_about_equally_often_over_all_recordings() -> None:
    apps = ["hotel", "social", "astronomy", "tidb"]
    request = make_request(
        faults=["all"], apps=apps, recording_s=7200.0, incidents=18, repeat=2, baseline_s=120.0, fault_s=120.0
    )
    plans = plan_campaign(request)
    assert [planned.app for planned in plans] == apps * 2
    used = Counter(incident.fault for planned in plans if planned.recording for incident in planned.recording.incidents)
    assert used.keys() == faults().keys()
    assert min(used.values()) >= 2
    assert max(used.values()) <= 3


def test_decoys_go_on_throughout_and_know_the_incidents_near_them() -> None:
    planned = plan()
    assert planned.recording is not None
    decoys = draw_recording_decoys(planned.recording, planned.phases, 4, np.random.default_rng(1))
    times_s = [decoy.times_s[0] for decoy, _ in decoys]
    assert len(decoys) > 20
    assert max(np.diff([0.0, *times_s, planned.recording.duration_s])) < 3600
    for decoy, near in decoys:
        during = {i.target for i in planned.recording.incidents if i.at_s <= decoy.times_s[1] < i.end_s}
        assert during <= near.keys()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recording_s": 61.0, "incidents": 0, "warmup_s": 70.0}, "--recording must be at least"),
        ({"recording_s": 3600.0}, "--incidents must be at most 6 in 60 min with --faulty 180 s and --healthy 180 s"),
        ({"recording_s": None}, "--incidents is for recordings only. Add --recording"),
        ({"concurrent": 2}, "Use --overlap for faults at the same time"),
        ({"sources": ["x"]}, "--sources is for episodes, not for --recording"),
        ({"log_levels": ["loud"]}, 'unknown log level "loud"'),
        ({"faults": ["noop"]}, "a recording with --incidents needs faults"),
    ],
)
def test_plans_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        plan(**options)
    assert message in str(error.value)


def test_most_incidents_are_those_that_fit() -> None:
    phases = plan().phases
    most = max_incidents(7200, phases)
    plan(recording_s=7200.0, incidents=most)
    with pytest.raises(UsageError, match=f"at most {most} "):
        plan(recording_s=7200.0, incidents=most + 1)


def test_a_dry_run_lists_the_incidents() -> None:
    command = ["--recording", "2h", "--incidents", "3", "--apps", "hotel", "--faults", "target-port", "--dry-run"]
    result = CliRunner().invoke(collect, command)
    assert result.exit_code == 0
    assert result.stdout.count("target-port") == 3
    assert "1 recording of 2 hours in all, with 3 incidents" in result.stdout
