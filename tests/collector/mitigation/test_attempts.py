"""Attempts to repair an application: by commands, by the controls, and by a mitigator."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from faultset.collector.apps import load_app
from faultset.collector.episodes.actions import EpisodeOptions
from faultset.collector.episodes.host_pressure import CpuPressure
from faultset.collector.episodes.messages import EpisodeOutcome
from faultset.collector.episodes.runner import EpisodeRunner
from faultset.collector.mitigation import attempts
from faultset.collector.mitigation.attempts import CallQueue, Mitigator, load_mitigator, run_mitigator
from faultset.collector.mitigation.messages import MitigationResult, MitigatorOrder, RepairOrder
from faultset.collector.mitigation.repairs import MITIGATION_PHASES, build_repair_order, read_command_lines
from faultset.collector.plans.plan import Plan
from faultset.collector.platforms.fake import FakePlatform
from faultset.collector.platforms.journal import Journal
from faultset.core.errors import PlatformError, UsageError
from tests.collector.plan_samples import PLAN

SECOND = 1_000_000_000
MITIGATION_PLAN = replace(PLAN, phases=MITIGATION_PHASES)
RIGHT = "kubectl patch svc geo --type merge -p " + (
    '\'{"spec": {"ports": [{"name": "8083", "protocol": "TCP", "port": 8083, "targetPort": 8083}]}}\''
)


class VirtualClock:
    """A clock that only waiting moves on; every wait adds the requests that clients have sent meanwhile.

    Parameters
    ----------
    spared_from_s
        From when on clients do not feel the fault for four seconds out of eight; they feel it always by default.
    """

    def __init__(self, platform: FakePlatform, spared_from_s: int | None = None):
        self.platform, self.spared_from_s = platform, spared_from_s
        self.began_ns = self.next_ns = time.time_ns() - 60 * SECOND
        self.passed_ns = 0

    def time_ns(self) -> int:
        return self.began_ns + self.passed_ns

    def monotonic_ns(self) -> int:
        return self.passed_ns

    def sleep(self, seconds: float, /) -> None:
        self.passed_ns += round(seconds * SECOND)
        while self.next_ns < self.time_ns() + 2 * SECOND:
            service = self.platform.objects.get(("Service", "geo"), {"spec": {"ports": ()}})
            works = any(port["targetPort"] == port["port"] for port in service["spec"]["ports"])
            if self.spared_from_s is not None:
                works |= ((self.next_ns - self.began_ns) // SECOND - self.spared_from_s) % 8 < 4
            self.platform.rows["requests"].append(
                {
                    "scheduled": self.next_ns,
                    "sent": self.next_ns,
                    "endpoint": "GET /hotels",
                    "latency_ns": 10_000_000,
                    "status": 200 if works else 500,
                    "outcome": "ok" if works else "http_error",
                }
            )
            self.next_ns += SECOND // 10


def run_mitigation(
    folder: Path, *orders: RepairOrder, plan: Plan = MITIGATION_PLAN, spared_from_s: int | None = None
) -> tuple[EpisodeOutcome, FakePlatform]:
    folder.mkdir(exist_ok=True)
    platform = FakePlatform(load_app("hotel"), Journal(folder / "journal.jsonl"))
    clock = VirtualClock(platform, spared_from_s)
    runner = EpisodeRunner(
        plan, platform, platform.journal, folder / "data", EpisodeOptions(repairs=orders, clock=clock)
    )
    return runner.run(), platform


def results_of(folder: Path, *orders: RepairOrder, plan: Plan = MITIGATION_PLAN) -> tuple[MitigationResult, ...]:
    outcome, platform = run_mitigation(folder, *orders, plan=plan)
    assert outcome.failure == ""
    assert platform.journal.open_undo_operations() == []
    assert platform.torn_down
    assert not (folder / "data" / "episodes").exists()
    return outcome.mitigations


def result_of(folder: Path, order: RepairOrder, plan: Plan = MITIGATION_PLAN) -> MitigationResult:
    (result,) = results_of(folder, order, plan=plan)
    return result


def wrong_parts(result: MitigationResult) -> set[str]:
    return {part.part for part in result.parts if not part.ok}


def test_doing_nothing_repairs_nothing_and_every_part_says_what_is_wrong(tmp_path: Path) -> None:
    result = result_of(tmp_path, build_repair_order("do-nothing", "geo", within_s=30))
    assert not result.success
    assert result.manifest
    assert result.mitigated_s is None
    assert wrong_parts(result) == {"fault", "requests", "objects"}
    details = {part.part: part.detail for part in result.parts}
    assert details["objects"].startswith("Service geo: spec.ports[0].targetPort is 9")
    assert "http_error" not in details["requests"]
    assert "requests failed" in details["requests"]


def test_the_true_undo_repairs_and_the_time_counts_from_the_injection(tmp_path: Path) -> None:
    result = result_of(tmp_path, build_repair_order("true-undo", "geo"))
    assert result.success
    assert wrong_parts(result) == set()
    assert result.mitigated_s is not None
    assert result.repair_s is not None
    assert 15 <= result.mitigated_s <= 22, "clients feel the fault for fifteen seconds before the repair begins"
    assert 0 <= result.repair_s <= 5


@pytest.mark.parametrize("spared_from_s", range(8))
def test_what_clients_noticed_before_the_repair_does_not_shorten_its_time(tmp_path: Path, spared_from_s: int) -> None:
    outcome, _ = run_mitigation(tmp_path, build_repair_order("true-undo", "geo"), spared_from_s=spared_from_s)
    assert outcome.failure == ""
    (result,) = outcome.mitigations
    assert result.repair_s is not None
    assert 0 <= result.repair_s <= 5


def test_repairs_in_turn_meet_one_injection_and_end_with_the_first_that_succeeds(tmp_path: Path) -> None:
    names = ("do-nothing", "restart-target", "true-undo", "restart-everything")
    results = results_of(tmp_path, *(build_repair_order(name, "geo", within_s=20, sustain_s=5) for name in names))
    assert [(one.repair, one.success) for one in results] == [
        ("do-nothing", False),
        ("restart-target", False),
        ("true-undo", True),
    ]
    assert [one.after for one in results] == [(), names[:1], names[:2]]
    undone = results[-1]
    assert undone.repair_s is not None
    assert undone.mitigated_s is not None
    assert 0 <= undone.repair_s <= 5, "counts from the begin of that repair"
    assert undone.mitigated_s >= 15 + 2 * 20, "counts from the injection"


def test_the_right_command_repairs(tmp_path: Path) -> None:
    result = result_of(tmp_path, RepairOrder(name="commands", commands=(RIGHT,)))
    assert [command.status for command in result.commands] == ["done"]
    assert result.success


def test_a_restart_does_not_repair_a_wrong_port(tmp_path: Path) -> None:
    result = result_of(tmp_path, build_repair_order("restart-everything", "geo", within_s=30))
    assert {command.status for command in result.commands} == {"done"}
    assert not result.success
    assert wrong_parts(result) == {"fault", "requests", "objects"}, "a restart itself is no change that counts"


def test_a_repair_that_breaks_something_else_is_none(tmp_path: Path) -> None:
    commands = (RIGHT, "kubectl delete configmap --all", "kubectl delete svc user")
    result = result_of(tmp_path, RepairOrder(name="commands", commands=commands, within_s=30))
    assert not result.success
    assert wrong_parts(result) == {"presence"}
    assert "Service user is missing" in next(part.detail for part in result.parts if not part.ok)


def test_a_deleted_object_that_the_check_of_the_fault_needs_is_no_repair(tmp_path: Path) -> None:
    result = result_of(tmp_path, RepairOrder(name="commands", commands=("kubectl delete svc geo",), within_s=30))
    details = {part.part: part.detail for part in result.parts}
    assert not result.success
    assert 'Service "geo" not found' in details["fault"]
    assert "Service geo is missing" in details["presence"]


def test_an_object_that_a_repair_deletes_and_makes_anew_differently_is_undone_to_its_former_content(
    tmp_path: Path,
) -> None:
    template = {"metadata": {"labels": {"app": "geo"}}, "spec": {"containers": [{"name": "geo", "image": "other:1"}]}}
    spec = {"selector": {"matchLabels": {"app": "geo"}}, "template": template}
    made = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "geo"}, "spec": spec}
    (tmp_path / "other.json").write_text(json.dumps(made))
    commands = ("kubectl delete deployment geo", "kubectl apply -f other.json")
    order = RepairOrder(name="commands", commands=commands, within_s=30, folder=tmp_path)
    result = result_of(tmp_path, order)
    assert [command.status for command in result.commands] == ["done", "done"]
    assert not result.success
    assert "Deployment geo" in next(part.detail for part in result.parts if part.part == "objects")


def test_an_undo_that_fails_is_not_put_down_to_a_busy_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object, operation: object) -> None:
        raise PlatformError("no")

    monkeypatch.setattr("faultset.collector.platforms.journal.JournaledObjects.execute_undo", fail)
    monkeypatch.setattr(CpuPressure, "is_busy", lambda self, window_s=10.0: True)
    outcome, _ = run_mitigation(tmp_path, build_repair_order("do-nothing", "geo", within_s=20))
    assert "could not be undone" in outcome.failure
    assert not outcome.disturbed_by_host


def test_a_fault_that_is_injected_repeatedly_goes_on_until_it_is_undone(tmp_path: Path) -> None:
    plan = replace(MITIGATION_PLAN, fault="pod-kill")
    result = result_of(tmp_path / "nothing", build_repair_order("do-nothing", "geo", within_s=30), plan)
    assert not result.success
    assert wrong_parts(result) == {"fault"}
    assert result_of(tmp_path / "undone", build_repair_order("true-undo", "geo", within_s=30), plan).success


def test_a_fault_that_never_shows_is_not_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faultset.collector.episodes.fault_steps.FaultSteps.confirm", lambda self: None)
    outcome, platform = run_mitigation(tmp_path, build_repair_order("do-nothing", "geo"))
    assert "must take effect within" in outcome.failure
    assert platform.journal.open_undo_operations() == []
    assert outcome.mitigations == ()


def test_an_interrupt_during_the_repair_undoes_the_fault(tmp_path: Path) -> None:
    platform = FakePlatform(load_app("hotel"), Journal(tmp_path / "journal.jsonl"))
    clock = VirtualClock(platform)
    order = build_repair_order("do-nothing", "geo")
    runner = EpisodeRunner(
        MITIGATION_PLAN,
        platform,
        platform.journal,
        tmp_path / "data",
        EpisodeOptions(repairs=[order], clock=clock, interrupted=lambda: runner.machine.phase == "mitigate"),
    )
    outcome = runner.run()
    assert outcome.failure == "interrupted during the repair"
    assert platform.journal.open_undo_operations() == []
    assert platform.get("Service", "geo")["spec"]["ports"][0]["targetPort"] == 8083


ORDER = MitigatorOrder(mitigator="operator", seconds=0.2)


def mitigated(
    work: Callable[[CallQueue], Mapping[str, Any]], between: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    queue = CallQueue()

    def of(mitigator: Mitigator) -> Mapping[str, Any]:
        return work(queue)

    return run_mitigator(ORDER, of, queue, between, time.monotonic_ns)


def test_calls_are_carried_out_in_the_thread_of_the_episode() -> None:
    def work(queue: CallQueue) -> Mapping[str, Any]:
        inside = queue.run(threading.current_thread)
        return {"same": inside is threading.main_thread(), "own": threading.current_thread() is inside}

    assert mitigated(work) == {"same": True, "own": False}


def test_a_call_that_fails_fails_in_the_thread_of_the_mitigator() -> None:
    def work(queue: CallQueue) -> Mapping[str, Any]:
        with pytest.raises(ZeroDivisionError):
            queue.run(lambda: 1 // 0)
        return {"went": "on"}

    assert mitigated(work) == {"went": "on"}


def test_code_that_fails_is_a_reason_in_the_record() -> None:
    assert "RuntimeError: no idea" in mitigated(lambda queue: (_ for _ in ()).throw(RuntimeError("no idea")))["failure"]


def test_a_mitigator_that_hangs_is_left_behind_and_its_later_calls_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "GRACE_S", 0.1)
    waits, failed = threading.Event(), threading.Event()

    def work(queue: CallQueue) -> Mapping[str, Any]:
        waits.wait(20)
        with pytest.raises(PlatformError, match="the time limit of the repair has passed"):
            queue.run(lambda: None)
        failed.set()
        return {}

    assert mitigated(work) == {"failure": "it did not finish within 0.2 s"}
    waits.set()
    assert failed.wait(20)


def test_an_episode_that_ends_meanwhile_ends_the_work() -> None:
    def ends() -> None:
        raise PlatformError("interrupted during the repair")

    with pytest.raises(PlatformError, match="interrupted"):
        mitigated(lambda queue: {"slept": threading.Event().wait(0.3)}, ends)


def test_an_unknown_mitigator_is_named() -> None:
    with pytest.raises(UsageError, match='unknown mitigator "nobody"'):
        load_mitigator("nobody")


def test_a_file_has_one_command_a_line_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "repair.txt"
    path.write_text("# first look\n\nkubectl get pods\nkubectl patch svc geo \\\n  -p '{}'\n")
    assert read_command_lines(path) == [(3, "kubectl get pods"), (4, "kubectl patch svc geo    -p '{}'")]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "has no command"),
        (b"# nothing\n", "has no command"),
        (b"kubectl get \\\n", "line 1: the command ends with a backslash"),
        (b"\xff\xfe", "must be text in UTF-8"),
        (b"x" * 2_000_000, "must have at most"),
    ],
)
def test_a_file_without_commands_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "repair.txt"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=sentence):
        read_command_lines(path)


def test_a_pipe_in_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="must be a regular file, but is a named pipe"):
        read_command_lines(tmp_path / "pipe")
