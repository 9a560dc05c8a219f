"""Mitigation campaigns: what is planned, what is made again, what a folder may hold."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from faultset.collector.campaigns.episode_queue import WaitingEpisode
from faultset.collector.campaigns.executors import CampaignProgress
from faultset.collector.campaigns.mitigations import Mitigation, mitigate, plan_mitigations, read_mitigations
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.collector.mitigation.messages import MitigationResult, RepairCheckResult, RepairOrder
from faultset.collector.mitigation.repairs import MITIGATION_PHASES, REPAIRS, build_repair_order
from faultset.collector.plans.campaign_plans import plan_campaign
from faultset.collector.plans.plan import Plan
from faultset.collector.plans.requests import make_request
from faultset.collector.platforms.local.host import LocalHost
from faultset.core.errors import DataError, PlatformError, UsageError
from tests.collector.fake_episodes import FakeExecutor


def plans(*faults: str, normal: int = 0) -> tuple[Plan, ...]:
    request = make_request(faults=faults, apps=["hotel"], normal=normal, profile="quick", **vars(MITIGATION_PHASES))
    return plan_campaign(request)


def orders(plan: Plan) -> list[RepairOrder]:
    return [build_repair_order(name, plan.target or "") for name in REPAIRS]


def result_of(order: RepairOrder, succeeds: bool, after: tuple[str, ...]) -> MitigationResult:
    return MitigationResult(
        repair=order.name,
        success=succeeds,
        parts=(RepairCheckResult(part="fault", ok=succeeds, detail="" if succeeds else "still there"),),
        commands=(),
        manifest=True,
        mitigated_s=20.5 if succeeds else None,
        repair_s=1.5 if succeeds else None,
        after=after,
    )


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Episodes that were run; those with the fault scale-to-zero fail."""
    run: list[str] = []

    def end(waiting: WaitingEpisode, root: Path) -> EpisodeOutcome:
        plan, results = waiting.plan, list[MitigationResult]()
        run.append(plan.episode)
        for order in waiting.repairs:
            succeeds = order.undoes or (plan.fault == "network-delay" and order.name == "restart-target")
            results.append(result_of(order, succeeds, tuple(one.repair for one in results)))
            if succeeds:
                break
        if plan.fault == "scale-to-zero":
            return EpisodeOutcome(episode=plan.episode, failure="the host was busy", retriable=False)
        return EpisodeOutcome(episode=plan.episode, mitigations=tuple(results))

    FakeExecutor.install(monkeypatch, end)
    return run


def test_every_plan_meets_every_repair_under_an_id_that_follows_from_both() -> None:
    planned = plan_mitigations(plans("target-port", "pod-kill"), orders)
    assert len(planned) == len({one.id for one in planned}) == 8
    assert planned == plan_mitigations(plans("target-port", "pod-kill"), orders)
    assert {one.plan.episode for one in planned} == {one.id for one in planned}
    other = plan_mitigations(
        plans("target-port", "pod-kill"), lambda plan: [build_repair_order("do-nothing", "", within_s=60)]
    )
    assert not {one.id for one in other} & {one.id for one in planned}


def test_an_episode_without_a_fault_cannot_be_repaired() -> None:
    with pytest.raises(UsageError, match="has no fault to repair"):
        plan_mitigations(plans("target-port", normal=1), orders)


def test_an_attempt_is_made_once_and_its_result_is_read_again(tmp_path: Path, made: list[str]) -> None:
    planned = plan_mitigations(plans("target-port"), orders)
    first = mitigate(planned, out=tmp_path / "out")
    assert sorted(made) == sorted(one.id for one in planned)
    assert [one.result.success for one in first.mitigations if one.result] == [False, False, False, True]
    again = mitigate(planned, out=tmp_path / "out")
    assert len(made) == len(planned), "nothing is made twice"
    assert again.mitigations == first.mitigations
    assert sorted(one.id for one in read_mitigations(tmp_path / "out")) == sorted(made)


def test_repairs_in_turn_share_an_episode_up_to_the_first_success(tmp_path: Path, made: list[str]) -> None:
    planned = plan_mitigations(plans("target-port", "network-delay"), orders)
    campaign = mitigate(planned, out=tmp_path / "out", in_turn=True)
    by_fault = {
        fault: [
            (one.order.name, one.result.success, len(one.result.after))
            for one in campaign.mitigations
            if one.plan.fault == fault and one.result
        ]
        for fault in ("target-port", "network-delay")
    }
    assert by_fault == {
        "target-port": [
            ("do-nothing", False, 0),
            ("restart-target", False, 1),
            ("restart-everything", False, 2),
            ("true-undo", True, 3),
        ],
        "network-delay": [
            ("do-nothing", False, 0),
            ("restart-target", True, 1),
            ("restart-everything", False, 0),
            ("true-undo", True, 1),
        ],
    }
    assert len(made) == len(set(made)) == 3, "network-delay is injected again for what came after the restart"
    assert mitigate(planned, out=tmp_path / "out", in_turn=True).mitigations == campaign.mitigations
    assert len(made) == 3, "nothing is made twice"


def test_progress_goes_on_with_the_episodes_that_meet_a_fault_anew(tmp_path: Path, made: list[str]) -> None:
    seen: list[CampaignProgress] = []
    planned = plan_mitigations(plans("target-port", "network-delay"), orders)
    mitigate(planned, out=tmp_path / "out", in_turn=True, progress=seen.append)
    totals = [len(one.finished) + len(one.running) + one.waiting for one in seen]
    assert (totals[0], totals[-1]) == (2, 3)
    assert [result.episode for result in seen[-1].finished] == made


def test_a_failure_in_turn_is_that_of_every_repair_of_the_episode(tmp_path: Path, made: list[str]) -> None:
    planned = plan_mitigations(plans("scale-to-zero"), orders)
    campaign = mitigate(planned, out=tmp_path / "out", in_turn=True)
    assert [one.failure for one in campaign.mitigations] == ["the host was busy"] * 4
    assert read_mitigations(tmp_path / "out") == ()


def test_an_attempt_that_cannot_be_made_is_named_and_made_again(tmp_path: Path, made: list[str]) -> None:
    planned = plan_mitigations(plans("scale-to-zero"), lambda plan: [build_repair_order("true-undo", "")])
    for _ in range(2):
        campaign = mitigate(planned, out=tmp_path / "out")
        with pytest.raises(PlatformError, match="1 of 1 attempt failed; first, scale-to-zero on"):
            campaign.raise_for_failures()
    assert len(made) == 2


def test_a_damaged_result_and_a_foreign_folder_are_refused(tmp_path: Path, made: list[str]) -> None:
    planned: tuple[Mitigation, ...] = plan_mitigations(plans("target-port"), orders)
    mitigate(planned, out=tmp_path / "out")
    (tmp_path / "out" / "mitigations" / f"{planned[0].id}.json").write_text('{"id": 3}')
    with pytest.raises(DataError, match="restore the file"):
        mitigate(planned, out=tmp_path / "out")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("x")
    with pytest.raises(DataError, match=r"must be empty or contain only mitigations, but .* contains 'thesis\.tex'"):
        mitigate(planned, out=tmp_path / "other")
    with pytest.raises(UsageError, match="must be for one platform, but are for none"):
        mitigate((), out=tmp_path / "new")


def test_an_episode_with_two_faults_cannot_be_repaired() -> None:
    (both,) = plan_campaign(make_request(faults=["target-port", "pod-kill"], apps=["hotel"], normal=0, concurrent=2))
    with pytest.raises(
        UsageError, match=r"must have one fault, but .* has several \(pod-kill on .* and target-port on "
    ):
        plan_mitigations([both], orders)


def test_plans_for_two_injectors_are_mitigated_apart(tmp_path: Path, made: list[str]) -> None:
    own = plans("target-port")
    planned = plan_mitigations([*own, *(replace(plan, injector="chaos-mesh") for plan in own)], orders)
    with pytest.raises(UsageError, match="must be for one injector, but are for agent, chaos-mesh"):
        mitigate(planned, out=tmp_path)


def test_what_stays_of_an_episode_is_told_and_its_result_is_there_all_the_same(
    tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def await_removal(host: LocalHost, episodes: Collection[str]) -> None:
        raise PlatformError(f"{len(episodes)} namespaces stay")

    monkeypatch.setattr(LocalHost, "await_removal", await_removal)
    told: list[str] = []
    campaign = mitigate(plan_mitigations(plans("target-port"), orders), out=tmp_path / "out", notify=told.append)
    assert told[-1] == "4 namespaces stay"
    assert all(one.result for one in campaign.mitigations)
