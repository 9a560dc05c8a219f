"""From a request to plans: reproducible, balanced, shuffled, telling nothing by themselves."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import faultset.collector.apps.hotel
from faultset.collector.apps import load_app
from faultset.collector.faults.registry import faults
from faultset.collector.plans.campaign_plans import campaign_id, plan_campaign
from faultset.collector.plans.options import NoFaultKind
from faultset.collector.plans.plan import Plan, random_draws
from faultset.collector.plans.requests import CampaignRequest, make_request
from faultset.collector.plans.timeline import eligible_services
from faultset.collector.platforms.hosts import QUICK, Phases
from faultset.collector.platforms.kubernetes.host import KubernetesHost
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
    others = (
        {"rate_rps": 21.0},
        {"spread": True},
        {"concurrent": 2},
        {"schedule": "gradual"},
        {"no_fault": ("plain",)},
    )
    assert len({campaign_id(replace(REQUEST, **change)) for change in ({}, *others)}) == 6


def test_a_replayed_file_with_other_rates_makes_another_campaign(tmp_path: Path) -> None:
    file = tmp_path / "rates.csv"
    request = replace(REQUEST, load=f"replay:{file}")
    ids = []
    for rate in (10, 10, 30):
        file.write_text(f"time_s,rate_rps\n0,20\n60,{rate}\n")
        ids.append(campaign_id(request))
    assert ids[0] == ids[1] != ids[2]


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


@pytest.mark.parametrize(("repeat", "without"), [(1, 2), (3, 3), (6, 6), (8, 6), (14, 7)])
def test_few_faults_get_as_many_no_fault_episodes_and_at_least_two(repeat: int, without: int) -> None:
    plans = plan_campaign(replace(REQUEST, faults=("target-port",), repeat=repeat))
    assert sum(p.fault is None for p in plans) == without


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
    onsets = [random_draws(replace(plan, seed=seed)).onset_s for seed in range(300)]
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
        ({"phases": Phases(warmup_s=5, baseline_s=3, fault_s=45, cooldown_s=5)}, "--healthy must be at least 20 s"),
        (
            {"phases": Phases(warmup_s=5, baseline_s=400, fault_s=50, cooldown_s=5)},
            "--faulty must be at least a quarter",
        ),
        ({"rate_rps": 0.0}, "--rate must be from 0.01"),
        ({"rate_rps": float("nan")}, "--rate must be from 0.01"),
        ({"mix": "nope"}, "workload mix"),
        ({"faults": (), "normal": 0}, "a campaign must have episodes, but none are requested"),
        ({"concurrent": 3}, "--concurrent must be from 1 to 2, but is 3"),
        (
            {"concurrent": 2, "faults": ("pod-kill",)},
            "two different faults, but only pod-kill of --faults applies",
        ),
        (
            {"concurrent": 2, "faults": ("pod-kill", "network-loss"), "targets": ("geo",)},
            "fault network-loss needs a partner on another target in hotel, but there is none",
        ),
        (
            {"concurrent": 2, "faults": ("pod-kill", "revoke-auth"), "targets": ("geo", "mongodb-geo")},
            "needs a partner on another target",
        ),
        ({"faults": ("pod-kill",), "schedule": "gradual"}, "fault pod-kill cannot be gradual; choose --faults from "),
        ({"faults": ("network-partition",), "schedule": "gradual"}, "fault network-partition cannot be gradual"),
        ({"schedule": "gradul"}, 'did you mean "gradual"'),
        ({"rollouts": 21}, "--rollouts must be from 0 to 20, but is 21"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_sentence(change: dict, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        plan_campaign(replace(REQUEST, **change))


def test_code_in_a_folder_is_refused_where_services_cannot_find_it(tmp_path: Path) -> None:
    shutil.copytree(Path(faultset.collector.apps.hotel.__file__).parent, tmp_path / "hotel")
    request = replace(REQUEST, apps=(str(tmp_path / "hotel"),))
    assert plan_campaign(request)
    with pytest.raises(
        UsageError, match=r"services on platform kubernetes need installed code, but app .* has its code in"
    ):
        plan_campaign(replace(request, platform="kubernetes"))


def test_an_application_with_an_operator_is_planned_on_a_cluster() -> None:
    request = replace(REQUEST, apps=("tidb",), faults=("overload-replicas",), mix=None, platform="kubernetes")
    assert {plan.app for plan in plan_campaign(request)} == {"tidb"}
    assert "tidb" in make_request(faults=["noop"], apps=["all"], platform="kubernetes").apps


def test_an_application_with_an_operator_is_refused_where_none_can_be_deployed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KubernetesHost, "deploys_operators", False)
    request = replace(REQUEST, faults=("noop",), mix=None, platform="kubernetes")
    with pytest.raises(UsageError, match="app tidb has an operator, which platform kubernetes cannot deploy"):
        plan_campaign(replace(request, apps=("tidb",)))
    assert plan_campaign(replace(request, apps=("tidb-pingcap",)))
    assert "tidb" in make_request(faults=["noop"], apps=["all"]).apps
    assert "tidb" not in make_request(faults=["noop"], apps=["all"], platform="kubernetes").apps


PAIRS = replace(REQUEST, concurrent=2)


def test_two_faults_at_once_are_different_and_no_name_is_a_right_answer_for_both() -> None:
    app = load_app("hotel")
    for seed in range(5):
        for plan in plan_campaign(replace(PAIRS, seed=seed)):
            if plan.fault is None:
                assert plan.faults == ()
                continue
            first, second = plan.faults
            assert first.fault < second.fault
            answers = [{one.target, *faults()[one.fault].also_accepted(app, one.target)} for one in (first, second)]
            assert answers[0].isdisjoint(answers[1])
            assert all(one.target in faults()[one.fault].targets(app) for one in plan.faults)


def test_every_fault_is_in_as_many_pairs_as_asked_and_pairs_have_half_as_many_no_fault_episodes() -> None:
    plans = plan_campaign(PAIRS)
    counts = Counter(one.fault for plan in plans for one in plan.faults)
    usable = [name for name, spec in faults().items() if spec.targets(load_app("hotel"))]
    assert counts.keys() == set(usable)
    assert min(counts.values()) == 2
    injected = sum(plan.fault is not None for plan in plans)
    assert len(usable) <= injected <= len(usable) + 2
    assert len(plans) - injected == max(6, -(-injected // 2))


def test_neither_of_two_targets_calls_the_other_where_there_is_a_choice() -> None:
    request = replace(PAIRS, faults=("network-delay", "http-abort"), repeat=20)
    calls = {"search": {"geo", "rate"}}
    for plan in plan_campaign(request):
        if plan.fault:
            one, other = (fault.target for fault in plan.faults)
            assert other not in calls.get(one, ())
            assert one not in calls.get(other, ())


def test_two_named_faults_are_one_episode_and_an_odd_one_gets_a_partner() -> None:
    two = plan_campaign(replace(PAIRS, faults=("network-delay", "http-abort"), repeat=1, normal=0))
    assert [plan.fault_name for plan in two] == ["http-abort + network-delay"]
    three = replace(PAIRS, faults=("network-delay", "http-abort", "pod-kill"), repeat=1, normal=0)
    counts = Counter(one.fault for plan in plan_campaign(three) for one in plan.faults)
    assert sorted(counts.values()) == [1, 1, 2]


def test_a_plan_with_two_faults_survives_json_and_draws_for_each_by_itself() -> None:
    plan = next(plan for plan in plan_campaign(PAIRS) if plan.further)
    assert Plan.from_json(plan.to_json()) == plan
    alone, both = random_draws(replace(plan, further=())), random_draws(plan)
    assert (alone.onset_s, alone.load_seed, alone.decoys) == (both.onset_s, both.load_seed, both.decoys)
    assert alone.fault.random() == both.fault.random()
    (further,) = both.further
    assert further.random() != random_draws(plan).fault.random()


def test_a_schedule_leaves_out_faults_that_cannot_follow_it_and_keeps_the_rest_of_the_plans() -> None:
    plans = plan_campaign(replace(REQUEST, schedule="gradual"))
    able = {name for name, spec in faults().items() if "gradual" in spec.schedules}
    assert {plan.fault for plan in plans if plan.fault} == able
    assert all(plan.schedule == ("gradual" if plan.fault else None) for plan in plans)
    plan = next(plan for plan in plans if plan.fault)
    assert Plan.from_json(plan.to_json()) == plan
    (course,) = random_draws(plan).courses
    assert course is not None
    assert course.rise_s > 0
    assert random_draws(replace(plan, schedule=None)).courses == (None,)
    assert random_draws(plan).fault.random() == random_draws(replace(plan, schedule=None)).fault.random()


def test_every_fault_can_be_constant() -> None:
    constant = plan_campaign(replace(REQUEST, schedule="constant"))
    assert [plan.title for plan in constant] == [plan.title for plan in plan_campaign(REQUEST)]


def test_two_faults_at_once_have_a_course_each() -> None:
    request = replace(REQUEST, faults=("network-delay", "http-abort"), concurrent=2, schedule="intermittent", normal=0)
    first, second = random_draws(plan_campaign(request)[0]).courses
    assert first is not None
    assert second is not None
    assert first != second


SPREAD = replace(REQUEST, apps=("hotel", "social", "astronomy", "tidb"), repeat=1, spread=True)


def test_spread_faults_are_once_in_a_campaign_in_applications_that_they_fit_about_equally_often() -> None:
    plans = [plan for plan in plan_campaign(SPREAD) if plan.fault]
    apps = [load_app(name) for name in SPREAD.apps]
    usable = {name for name, spec in faults().items() if any(spec.targets(app) for app in apps)}
    assert Counter(plan.fault for plan in plans) == dict.fromkeys(usable, 1)
    assert all(plan.target in faults()[plan.fault].targets(load_app(plan.app)) for plan in plans if plan.fault)
    per_app = Counter(plan.app for plan in plans)
    assert max(per_app.values()) - min(per_app.values()) <= 1


def test_a_spread_fault_may_miss_in_one_application_but_not_in_all() -> None:
    two = replace(SPREAD, apps=("hotel", "tidb"), faults=("wrong-operator-image",), normal=0)
    assert [plan.app for plan in plan_campaign(two)] == ["tidb"]
    with pytest.raises(UsageError, match="wrong-operator-image has no possible target in hotel or social"):
        plan_campaign(replace(two, apps=("hotel", "social")))


def test_a_fault_that_is_repeated_comes_to_another_application_or_target_where_there_is_one() -> None:
    apps = {name: load_app(name) for name in SPREAD.apps}
    plans = [plan for plan in plan_campaign(replace(SPREAD, repeat=2)) if plan.fault]
    for name, spec in faults().items():
        places = {(app, target) for app in apps for target in spec.targets(apps[app])}
        had = [(plan.app, plan.target) for plan in plans if plan.fault == name]
        assert len(had) == (2 if places else 0), name
        assert len(set(had)) == min(len(places), 2), name
        assert len({app for app, _ in had}) == min(len({app for app, _ in places}), 2), name
    alone = [plan for plan in plan_campaign(replace(REQUEST, repeat=2)) if plan.fault]
    for name in {plan.fault for plan in alone if plan.fault}:
        targets = [plan.target for plan in alone if plan.fault == name]
        assert len(set(targets)) == min(len(faults()[name].targets(load_app("hotel"))), len(targets)), name


def test_kinds_of_episodes_without_a_fault_take_turns() -> None:
    def kinds(*chosen: NoFaultKind) -> Counter[str | None]:
        plans = plan_campaign(replace(REQUEST, apps=("hotel",), normal=4, no_fault=chosen))
        return Counter(plan.no_fault_kind for plan in plans if plan.fault is None)

    assert kinds("plain") == {"plain": 4}
    assert kinds("plain", "sham") == {"plain": 2, "sham": 2}


def test_an_unknown_kind_without_a_fault_is_named() -> None:
    with pytest.raises(UsageError, match='unknown kind of episode without a fault "plian"; did you mean "plain"'):
        make_request(faults=["noop"], apps=["hotel"], no_fault=["plian"])
    with pytest.raises(UsageError, match="--no-fault must name a kind of episode"):
        make_request(faults=["noop"], apps=["hotel"], no_fault=[])


def test_another_injector_makes_another_campaign_and_is_in_every_plan() -> None:
    def asked(injector: str | None) -> CampaignRequest:
        return make_request(faults=["pod-kill"], apps=["hotel"], platform="kubernetes", injector=injector)

    own, other = asked(None), asked("chaos-mesh")
    assert asked("agent") == own
    assert campaign_id(other) != campaign_id(own)
    assert {plan.injector for plan in plan_campaign(other)} == {"chaos-mesh"}
    assert plan_campaign(other)[0].settings == {"injector": "chaos-mesh"}
    assert plan_campaign(own)[0].settings == {}
    assert {plan.episode for plan in plan_campaign(own)}.isdisjoint(plan.episode for plan in plan_campaign(other))
    written = plan_campaign(other)[0]
    assert Plan.from_json(written.to_json()) == written


def test_a_platform_without_injectors_is_named() -> None:
    with pytest.raises(UsageError, match="platform local does not support --injector"):
        make_request(faults=["pod-kill"], apps=["hotel"], injector="agent")


def test_a_profile_sets_the_mean_number_of_decoys_unless_the_request_does() -> None:
    def mean_numbers(**given: Any) -> set[int]:
        return {plan.rollouts for plan in plan_campaign(make_request(faults=["all"], apps=["hotel"], **given))}

    assert mean_numbers(profile="quick") == {3}
    assert mean_numbers(profile="standard") == {4}
    assert mean_numbers(profile="long") == {10}
    assert mean_numbers(profile="quick", rollouts=1) == {1}
    assert mean_numbers(profile="standard", rollouts=0) == {0}


APPS = ["astronomy", "hotel", "social", "tidb"]
DECOY_PLANS = plan_campaign(make_request(faults=["all"], apps=APPS, profile="quick", repeat=3, seed=4))


def test_an_episode_has_the_same_decoys_with_and_without_its_fault() -> None:
    for plan in (plan for plan in DECOY_PLANS if plan.fault):
        without = replace(plan, fault=None, target=None, no_fault_kind="plain")
        assert random_draws(plan).decoys == random_draws(without).decoys


def test_the_number_of_decoys_does_not_depend_on_the_fault() -> None:
    numbers: dict[bool, Counter[int]] = {False: Counter(), True: Counter()}
    for plan in DECOY_PLANS:
        numbers[plan.fault is not None][min(5, len(random_draws(plan).decoys))] += 1
    table = [[numbers[has_fault][count] for count in range(1, 6)] for has_fault in (False, True)]
    comparison: Any = stats.chi2_contingency(table)
    assert comparison.pvalue > 0.001


def test_decoys_hit_targets_and_their_neighbours_as_often_as_other_services() -> None:
    hits: Counter[str] = Counter()
    chances: Counter[str] = Counter()
    for plan in (plan for plan in DECOY_PLANS if plan.target):
        app, target = load_app(plan.app), str(plan.target)
        near = {name for call in app.calls if target in call for name in call} - {target}
        for decoy in random_draws(plan).decoys:
            kind, service = decoy.choose(app)
            possible = eligible_services(kind, app)
            for group, names in (("target", {target}), ("near", near)):
                hits[group] += service in names
                chances[group] += len(names & {*possible}) / len(possible)  # type: ignore[assignment]
    for group, expected in chances.items():
        assert stats.poisson.interval(0.999, expected)[0] <= hits[group] <= stats.poisson.interval(0.999, expected)[1]
    assert hits["target"] > 10
