"""From a request to plans: reproducible, balanced, shuffled, telling nothing by themselves."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import faultset.collector.apps.hotel
from faultset.collector.apps import load_app
from faultset.collector.faults.registry import faults
from faultset.collector.plans.campaign_plans import campaign_id, plan_campaign
from faultset.collector.plans.plan import Plan, draw
from faultset.collector.plans.requests import CampaignRequest
from faultset.collector.platforms.api.profiles import QUICK, Phases
from faultset.core.errors import UsageError

REQUEST = CampaignRequest(
    faults=("all",),
    apps=("hotel",),
    targets=(),
    platform="local",
    seed=3,
    repeat=2,
    normal=None,
    phases=QUICK,
    profile="quick",
    rate_rps=20.0,
    mix=None,
    step_s=1.0,
)


def test_the_same_request_gives_the_same_plans_and_another_seed_others() -> None:
    assert plan_campaign(REQUEST) == plan_campaign(REQUEST)
    assert plan_campaign(REQUEST) != plan_campaign(replace(REQUEST, seed=4))
    assert campaign_id(REQUEST) != campaign_id(replace(REQUEST, rate_rps=21.0))


def test_a_further_run_of_a_request_has_other_ids_and_is_else_the_same() -> None:
    again = plan_campaign(REQUEST, run=2)
    assert {p.episode for p in again}.isdisjoint(p.episode for p in plan_campaign(REQUEST))
    assert [replace(p, episode="") for p in again] == [replace(p, episode="") for p in plan_campaign(REQUEST)]


def test_all_faults_are_planned_as_often_as_asked_with_one_no_fault_episode_for_two() -> None:
    plans = plan_campaign(REQUEST)
    counts = Counter(p.fault for p in plans if p.fault)
    usable = [name for name, spec in faults().items() if spec.targets(load_app("hotel"))]
    assert counts == dict.fromkeys(usable, 2)
    assert sum(p.fault is None for p in plans) == len(usable)
    kinds = Counter(p.no_fault_kind for p in plans if p.fault is None)
    assert set(kinds) == {"plain", "disturbed", "sham"}
    assert max(kinds.values()) - min(kinds.values()) <= 1


def test_few_faults_still_get_six_no_fault_episodes() -> None:
    plans = plan_campaign(replace(REQUEST, faults=("target-port",), repeat=1))
    assert sum(p.fault is None for p in plans) == 6


def test_targets_are_possible_ones_and_balanced() -> None:
    app = load_app("hotel")
    plans = plan_campaign(replace(REQUEST, repeat=7))
    for plan in plans:
        if plan.fault:
            assert plan.target in faults()[plan.fault].targets(app)
    logic = Counter(p.target for p in plans if p.target and app.services[p.target].kind == "logic")
    assert max(logic.values()) - min(logic.values()) <= 3


def test_position_does_not_tell_whether_there_is_a_fault() -> None:
    ranks = []
    for seed in range(40):
        plans = plan_campaign(replace(REQUEST, seed=seed, repeat=1))
        ranks.append(np.mean([i for i, p in enumerate(plans) if p.fault is None]) / (len(plans) - 1))
    assert 0.45 < np.mean(ranks) < 0.55


def test_noop_alone_means_no_fault_episodes() -> None:
    plans = plan_campaign(replace(REQUEST, faults=("noop",), normal=3))
    assert [p.fault for p in plans] == [None] * 3


def test_the_onset_stays_behind_the_reference_and_before_the_end() -> None:
    plan = plan_campaign(REQUEST)[0]
    onsets = [draw(replace(plan, seed=seed)).onset_s for seed in range(300)]
    assert min(onsets) >= plan.phases.reference_s
    assert max(onsets) < plan.phases.view_s
    assert np.std(onsets) > 0.1 * plan.phases.baseline_s


def test_a_plan_survives_json() -> None:
    plan = plan_campaign(REQUEST)[0]
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"faults": ("target-prot",)}, 'did you mean "target-port"'),
        ({"apps": ("hotell",)}, 'did you mean "hotel"'),
        ({"targets": ("geoo",)}, 'did you mean "geo"'),
        ({"faults": ("revoke-auth",), "targets": ("search",)}, "its targets in hotel are mongodb-geo, mongodb-rate"),
        ({"phases": Phases(warmup_s=5, baseline_s=3, fault_s=45, cooldown_s=5)}, "--baseline must be at least 20 s"),
        (
            {"phases": Phases(warmup_s=5, baseline_s=400, fault_s=50, cooldown_s=5)},
            "--fault must be at least a quarter",
        ),
        ({"rate_rps": 0.0}, "--rate must be from 0.01"),
        ({"rate_rps": float("nan")}, "--rate must be from 0.01"),
        ({"mix": "nope"}, "workload mix"),
        ({"faults": (), "normal": 0}, "nothing to collect"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_sentence(change: dict, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        plan_campaign(replace(REQUEST, **change))


def test_code_in_a_folder_is_refused_where_services_cannot_find_it(tmp_path: Path) -> None:
    shutil.copytree(Path(faultset.collector.apps.hotel.__file__).parent, tmp_path / "hotel")
    request = replace(REQUEST, apps=(str(tmp_path / "hotel"),))
    assert plan_campaign(request)
    with pytest.raises(UsageError, match="which services on platform kubernetes cannot find; build an image"):
        plan_campaign(replace(request, platform="kubernetes"))
