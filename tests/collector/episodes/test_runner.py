"""The runner on the platform in memory: what it does when things go wrong, and what it writes when they do not."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from faultset.collector.apps import load_app
from faultset.collector.episodes import actions, fault_steps, health
from faultset.collector.episodes.actions import EpisodeOptions
from faultset.collector.episodes.host_pressure import CpuPressure
from faultset.collector.episodes.records import SYSTEM_CLOCK, EpisodeClock
from faultset.collector.episodes.runner import EpisodeRunner
from faultset.collector.faults.registry import get_fault
from faultset.collector.mitigation.messages import RepairOrder
from faultset.collector.plans.plan import Plan, PlannedFault
from faultset.collector.platforms.base import CannotStart, HostLoad
from faultset.collector.platforms.fake import FakePlatform, FakeSource
from faultset.collector.platforms.hosts import Phases
from faultset.collector.platforms.journal import Journal
from faultset.collector.sources.contract import SampledSource
from faultset.collector.sources.recorder import SourceRecorder, source_spec
from faultset.collector.verdicts.latent import rolled_out_services
from faultset.core.errors import PlatformError
from faultset.datasets.checks.verification import verify
from faultset.datasets.format import episodes
from faultset.datasets.format.labels import read_evidence, read_journal, read_label
from faultset.datasets.format.schemas import AddedColumn
from faultset.datasets.format.versions import create_version
from faultset.datasets.metrics.roles import MetricRole
from faultset.datasets.validation import find_label_problems
from faultset.datasets.views import EpisodeView
from faultset.evaluators.results.truth import build_truth
from tests.collector.plan_samples import PLAN
from tests.collector.virtual_clock import VirtualClock

SECOND = 1_000_000_000
SHORT_PLAN = replace(PLAN, phases=Phases(warmup_s=0.1, baseline_s=1.5, fault_s=1.5, cooldown_s=0.1))


@pytest.fixture(autouse=True)
def calibrated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The latent test has a limit, whatever was measured for the release."""
    limit = "faultset.collector.episodes.recording.threshold_for"
    monkeypatch.setattr(limit, lambda app, platform, step_s, load: 10.0)


@pytest.fixture(autouse=True)
def short_recovery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "SETTLE_NS", SECOND // 10)
    monkeypatch.setattr(fault_steps, "RECOVERY_WINDOW_S", 0.5)
    monkeypatch.setattr(actions, "RECOVERY_TIMEOUT_S", 3.0)


def runner(
    folder: Path,
    plan: Plan = SHORT_PLAN,
    outcome: str = "ok",
    latency_ms: int = 10,
    clock: EpisodeClock | None = None,
    **options,
) -> EpisodeRunner:
    platform = FakePlatform(load_app("hotel"), Journal(folder / "journal.jsonl"))
    clock = clock or VirtualClock()
    now = clock.time_ns()
    platform.rows["requests"] = [
        {
            "scheduled": now + n * SECOND // 10,
            "sent": now + n * SECOND // 10,
            "endpoint": "GET /hotels",
            "latency_ns": latency_ms * 1_000_000,
            "status": 200,
            "outcome": outcome,
        }
        for n in range(-100, 300)
    ]
    return EpisodeRunner(plan, platform, platform.journal, folder / "data", EpisodeOptions(clock=clock, **options))


def fake(subject: EpisodeRunner) -> FakePlatform:
    assert isinstance(subject.platform, FakePlatform)
    return subject.platform


def test_a_finished_episode_has_its_injection_and_recovery_proved(tmp_path: Path) -> None:
    subject = runner(tmp_path)
    outcome = subject.run()
    assert outcome.failure == ""
    assert outcome.verdict == "silent"  # the requests of this test do not suffer
    folder = tmp_path / "data" / "episodes" / "abc"
    label, evidence = read_label(folder), read_evidence(folder)
    assert label.fault == "target-port"
    assert label.root_causes[0].name == "geo"
    instants = [
        label.inject_start_ns, label.inject_done_ns, label.effective_ns, label.recover_start_ns, label.healthy_again_ns
    ]  # fmt: skip
    assert instants == sorted(at_ns for at_ns in instants if at_ns is not None)
    passed = evidence.set_index("check")["passed"]
    assert passed["injection"]
    assert passed["recovery"]
    start_ns, end_ns = EpisodeView(folder).window
    assert end_ns - start_ns == 3 * SECOND
    requests = EpisodeView(folder).requests()
    assert (pd.to_datetime(start_ns, utc=True) <= requests["scheduled"]).all()
    assert fake(subject).journal.open_undo_operations() == []
    assert fake(subject).torn_down


def test_a_no_fault_episode_has_no_instants(tmp_path: Path) -> None:
    plan = replace(SHORT_PLAN, fault=None, target=None, no_fault_kind="sham")
    assert runner(tmp_path, plan).run().failure == ""
    label = read_label(tmp_path / "data" / "episodes" / "abc")
    assert label.fault is None
    assert label.no_fault_kind == "sham"
    assert label.inject_start_ns is None
    assert label.verdict == "none"


def test_decoys_beside_the_fault_are_in_the_journal_and_undone(tmp_path: Path) -> None:
    subject = runner(tmp_path, replace(SHORT_PLAN, rollouts=12))
    assert subject.run().failure == ""
    folder = tmp_path / "data" / "episodes" / "abc"
    steps = [record["args"] for record in read_journal(folder) if record.get("verb") == "decoy"]
    assert {step["number"] for step in steps} == {decoy.number for decoy in subject.machine.draws.decoys}
    evidence = read_evidence(folder)
    replaced = {step["replaces_pods_of"] for step in steps if "replaces_pods_of" in step}
    assert set(evidence.loc[evidence["check"] == "rollout", "subject"]) == replaced
    assert fake(subject).journal.open_undo_operations() == []


def test_in_an_episode_without_a_fault_what_was_rolled_out_is_not_asked_whether_it_moved(tmp_path: Path) -> None:
    plan = replace(SHORT_PLAN, fault=None, target=None, no_fault_kind="plain", rollouts=12)
    assert runner(tmp_path, plan).run().failure == ""
    evidence = read_evidence(tmp_path / "data" / "episodes" / "abc")
    rolled_out = set(rolled_out_services(evidence))
    assert rolled_out
    judged = set(evidence.loc[evidence["check"] == "latent", "subject"])
    assert not rolled_out & judged


def test_a_repair_is_tried_without_decoys(tmp_path: Path) -> None:
    orders = [RepairOrder(name="undo", undoes=True)]
    assert runner(tmp_path, replace(SHORT_PLAN, rollouts=2), repairs=orders).machine.draws.decoys == ()


def test_an_unhealthy_application_is_torn_down_and_nothing_is_written(tmp_path: Path, monkeypatch) -> None:
    subject = runner(tmp_path, outcome="http_error")
    subject.machine.warm_grace_s = 0.0
    outcome = subject.run()
    assert "not healthy after the warm-up" in outcome.failure
    assert "requests failed: GET /hotels with status 200 " in outcome.failure
    assert not (tmp_path / "data" / "episodes").exists()
    assert fake(subject).torn_down


def test_a_fault_that_is_never_confirmed_is_undone_and_the_episode_is_void(tmp_path: Path) -> None:
    subject = runner(tmp_path, pressure=busy(0.0))
    subject.record.faults[0].spec = replace(
        subject.record.faults[0].spec, check=lambda platform, target, parameters, before: None
    )
    outcome = subject.run()
    assert "must take effect within" in outcome.failure
    assert not outcome.retriable, "the same plan would end in the same way"
    assert fake(subject).journal.open_undo_operations() == []
    assert not (tmp_path / "data" / "episodes" / "abc").exists()


def test_an_injection_that_breaks_halfway_is_undone(tmp_path: Path) -> None:
    subject = runner(tmp_path)

    def half(platform, target, rng):
        platform.patch("Deployment", target, {"spec": {"replicas": 0}})
        raise PlatformError("the second act failed")

    subject.record.faults[0].spec = replace(subject.record.faults[0].spec, inject=half)
    assert subject.run().failure == "the second act failed"
    assert subject.platform.get("Deployment", "geo")["spec"]["replicas"] == 1


def test_an_interrupt_during_the_fault_undoes_and_writes_nothing(tmp_path: Path) -> None:
    subject = runner(tmp_path)
    subject._interrupted = lambda: subject.record.inject_done_ns is not None
    outcome = subject.run()
    assert outcome.interrupted
    assert fake(subject).journal.open_undo_operations() == []
    assert not (tmp_path / "data" / "episodes" / "abc").exists()


def test_a_bug_is_raised_after_undo_and_teardown(tmp_path: Path) -> None:
    subject = runner(tmp_path)

    def buggy(platform, target, rng):
        platform.patch("Deployment", target, {"spec": {"replicas": 0}})
        raise ZeroDivisionError

    subject.record.faults[0].spec = replace(subject.record.faults[0].spec, inject=buggy)
    with pytest.raises(ZeroDivisionError):
        subject.run()
    assert fake(subject).journal.open_undo_operations() == []
    assert fake(subject).torn_down


def test_an_episode_on_an_overloaded_host_is_void(tmp_path: Path) -> None:
    subject = runner(tmp_path)
    fake(subject).load = HostLoad(worst_delay_ms=9000.0)
    outcome = subject.run()
    assert "ms, but the delay was 9000 ms" in outcome.failure
    assert "--jobs" in outcome.failure
    assert not (tmp_path / "data" / "episodes" / "abc").exists()


def test_a_host_whose_load_is_not_measured_is_recorded_as_such(tmp_path: Path) -> None:
    subject = runner(tmp_path)
    fake(subject).load = HostLoad(load_average=1.0)
    assert subject.run().failure == ""
    (row,) = [row for row in subject.record.evidence if row["check"] == "host"]
    assert (row["passed"], row["detail"]) == (False, "this platform does not measure delays of the host")


def test_the_delay_of_the_collector_counts_where_nodes_are_not_measured(tmp_path: Path) -> None:
    subject = runner(tmp_path)
    fake(subject).load = HostLoad(collector_delay_ms=2000.0)
    assert "ms, but the delay was 2000 ms" in subject.run().failure


def test_an_application_that_answers_too_slowly_is_not_healthy(tmp_path: Path) -> None:
    subject = runner(tmp_path, latency_ms=1500)
    subject.machine.warm_grace_s = 0.0
    assert "took more than 1.5 s; the host may be too busy" in subject.run().failure


class Meter(SampledSource):
    """What the machine draws."""

    table = "power"
    columns = (AddedColumn(name="watts", type="double", unit="W", meaning="drawn power"),)

    def sample(self) -> Iterator[dict[str, Any]]:
        yield {"watts": 80.0}


class Jump(SampledSource):
    """A series of the target that jumps when the fault begins."""

    table = "metrics"
    metric_roles = (MetricRole(source="jump", metric="jump", role="saturation", unit="1", kind="gauge", combine="sum"),)
    begin_ns = 0

    def sample(self) -> Iterator[dict[str, Any]]:
        self.begin_ns = self.begin_ns or time.time_ns()
        yield {"metric": "jump", "service": "geo", "value": 1e6 * (time.time_ns() > self.begin_ns + 2 * SECOND)}


class Broken(Meter):
    """Nothing, because it breaks."""

    table = "broken"

    def start(self) -> None:
        raise OSError("no such meter")


def test_added_sources_are_part_of_the_episode_and_not_of_its_verdict(tmp_path: Path) -> None:
    specs = [source_spec(one.__name__.lower(), one) for one in (Meter, Jump, Broken)]
    sources = SourceRecorder(specs, tmp_path / "sources")  # they measure while time really passes
    outcome = runner(tmp_path, replace(SHORT_PLAN, step_s=0.1), clock=SYSTEM_CLOCK, sources=sources).run()
    assert outcome.failure == ""
    assert outcome.verdict == "silent", "a verdict is made from what every campaign measures"
    assert list(outcome.source_failures) == ["broken"]
    view = EpisodeView(tmp_path / "data" / "episodes" / "abc")
    assert view.tables[-2:] == ("power", "broken")
    assert 20 <= len(view.table("power")) <= 31
    assert len(view.table("broken")) == 0
    assert view.context.source_intervals_s["power"] == 0.1
    assert view.wide(0.5)["geo", "jump"].max() == 1e6
    assert view.catalogue.role_of("jump") == "saturation"
    evidence = read_evidence(tmp_path / "data" / "episodes" / "abc")
    seen = evidence[evidence["check"] == "source"].set_index("subject")
    assert seen["passed"].to_dict() == {"meter": True, "jump": True, "broken": False}
    assert "could not start: OSError: no such meter" in seen["detail"]["broken"]
    create_version(tmp_path / "data", provenance={})
    assert [str(one) for one in verify(tmp_path / "data") if one.severity == "error"] == []


class ThinnedSource(FakeSource):
    """A source whose server has not everything."""

    notes = ("Prometheus has no samples of the pods geo-1",)


def test_what_a_source_of_the_platform_lacks_is_evidence(tmp_path: Path) -> None:
    subject = runner(tmp_path)
    fake(subject).source_kinds["metrics"] = ThinnedSource
    assert subject.run().failure == ""
    evidence = read_evidence(tmp_path / "data" / "episodes" / "abc")
    (seen,) = evidence[evidence["check"] == "source"].to_dict("records")
    assert (seen["subject"], seen["passed"], seen["detail"]) == ("metrics", False, *ThinnedSource.notes)


def busy(share: float) -> CpuPressure:
    """Return a pressure that is measured to be the same all the time."""
    began = time.monotonic() - 30.0
    pressure = CpuPressure(lambda: share * (time.monotonic() - began), lambda: time.monotonic() - began)
    pressure._samples.appendleft((began, 0.0, 0.0))
    return pressure


def test_a_failure_on_a_busy_host_is_put_down_to_the_host(tmp_path: Path) -> None:
    for share, spoiled in ((1.0, True), (0.1, False)):
        (tmp_path / str(share)).mkdir()
        subject = runner(tmp_path / str(share), outcome="http_error", pressure=busy(share))
        subject.machine.warm_grace_s = 0.0
        outcome = subject.run()
        assert outcome.failure
        assert (outcome.disturbed_by_host, outcome.retriable) == (spoiled, True)


def test_a_delay_of_the_host_is_put_down_to_the_host(tmp_path: Path) -> None:
    subject = runner(tmp_path, pressure=busy(0.0))
    fake(subject).load = HostLoad(worst_delay_ms=9000.0)
    assert subject.run().disturbed_by_host


def test_a_fault_that_is_not_confirmed_is_tried_again_only_if_the_host_was_busy(tmp_path: Path) -> None:
    for share, retriable in ((1.0, True), (0.0, False)):
        (tmp_path / str(share)).mkdir()
        subject = runner(tmp_path / str(share), pressure=busy(share))
        subject.record.faults[0].spec = replace(
            subject.record.faults[0].spec, check=lambda platform, target, parameters, before: None
        )
        assert subject.run().retriable is retriable


@pytest.mark.parametrize(("slow_from_s", "is_injected"), [(3.0, False), (7.0, True)])
def test_an_episode_whose_requests_had_moved_before_the_injection_is_void(
    slow_from_s: float, is_injected: bool, tmp_path: Path
) -> None:
    plan = replace(SHORT_PLAN, phases=Phases(warmup_s=0.1, baseline_s=8.0, fault_s=1.5, cooldown_s=0.1))
    subject = runner(tmp_path, plan, pressure=busy(0.0))
    slow_ns = time.time_ns() + int(slow_from_s * SECOND)
    rows = fake(subject).rows["requests"]
    fake(subject).rows["requests"] = [
        {
            **row,
            "scheduled": row["scheduled"] + shift,
            "latency_ns": row["latency_ns"] + (row["scheduled"] > slow_ns) * SECOND // 5,
        }
        for row in rows
        for shift in range(0, SECOND // 10, SECOND // 50)
    ]
    outcome = subject.run()
    assert "client requests had changed before the injection" in outcome.failure
    assert outcome.disturbed_by_host
    assert not (tmp_path / "data" / "episodes" / "abc").exists()
    # what is known to be void in time is not injected
    assert (subject.record.inject_start_ns is not None) is is_injected


def test_each_stage_of_an_episode_is_one_line_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="faultset"):
        assert runner(tmp_path, pressure=busy(0.0)).run().failure == ""
    lines = [line.split(":")[0] for line in caplog.messages]
    assert lines == [
        "hotel is deployed",
        "hotel is ready",
        "constant load of 10 requests a second has begun, mix default",
        "hotel is healthy after the warm-up",
        "hotel is healthy before the injection",
        "injected",
        "target-port on geo is in effect",
        "all changes are undone",
        "hotel is healthy again",
        "telemetry is read",
        "written, verdict silent",
    ]


def test_a_full_disk_is_no_reason_to_run_an_episode_again_even_on_a_busy_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_disk_full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(episodes, "write_text", raise_disk_full)
    monkeypatch.setattr(CpuPressure, "is_busy", lambda self, window_s=10.0: True)
    outcome = runner(tmp_path).run()
    assert outcome.failure.startswith(f"no space left on the disk of {tmp_path / 'data' / 'episodes'}")
    assert (outcome.retriable, outcome.disturbed_by_host, outcome.exit_code) == (False, False, 3)
    assert not list((tmp_path / "data").glob("episodes/*"))


@pytest.mark.parametrize(
    ("error", "retriable"), [(CannotStart("nodes lack images"), False), (PlatformError("no answer"), True)]
)
def test_an_application_that_cannot_start_on_the_host_is_not_waited_for_twice(
    error: PlatformError, retriable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = runner(tmp_path, pressure=busy(0.0))

    def deploy() -> None:
        raise error

    monkeypatch.setattr(fake(subject), "deploy", deploy)
    outcome = subject.run()
    assert str(error) in outcome.failure
    assert outcome.retriable is retriable


@pytest.mark.parametrize("step_s", [-3600, 3600])
def test_a_clock_that_is_set_voids_the_episode_at_once(step_s: int, tmp_path: Path) -> None:
    clock = VirtualClock()
    clock.set_after_ns, clock.set_by_ns = 6 * SECOND // 10, step_s * SECOND
    outcome = runner(tmp_path, clock=clock).run()
    assert f"but jumped by {step_s:+.1f} s" in outcome.failure
    assert outcome.retriable
    assert outcome.exit_code == 4
    assert clock.passed_ns < 4 * SECOND
    assert not list((tmp_path / "data").glob("episodes/*"))


def test_a_process_of_the_platform_that_ended_voids_the_episode_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = VirtualClock()
    subject = runner(tmp_path, clock=clock)

    def check_processes() -> None:
        if clock.passed_ns > SECOND // 2:
            raise PlatformError("relay ended with code -9; it said last: nothing")

    monkeypatch.setattr(fake(subject), "check_processes", check_processes, raising=False)
    outcome = subject.run()
    assert outcome.failure.startswith("relay ended with code -9")
    assert outcome.retriable
    assert clock.passed_ns < 4 * SECOND


def test_one_bad_replica_has_its_pod_as_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = replace(get_fault("one-bad-replica"), check=lambda platform, target, parameters, before: "it shows")
    monkeypatch.setattr("faultset.collector.episodes.runner.get_fault", lambda name: shown)
    subject = runner(tmp_path, replace(SHORT_PLAN, fault="one-bad-replica"))
    assert subject.run().failure == ""
    label = read_label(tmp_path / "data" / "episodes" / "abc")
    (cause,) = label.root_causes
    assert (cause.kind, cause.service, cause.name) == ("Pod", "geo", label.parameters["pod"])
    assert cause.name.startswith("geo-")


BOTH = replace(SHORT_PLAN, further=(PlannedFault(fault="scale-to-zero", target="rate"),))


def test_two_faults_are_injected_confirmed_and_labelled_each_by_itself(tmp_path: Path) -> None:
    subject = runner(tmp_path, BOTH)
    assert subject.run().failure == ""
    folder = tmp_path / "data" / "episodes" / "abc"
    label, evidence = read_label(folder), read_evidence(folder)
    assert (label.fault, label.targets) == ("target-port + scale-to-zero", ("geo", "rate"))
    assert [(cause.service, cause.accepted) for cause in label.root_causes] == [("geo", ("geo",)), ("rate", ("rate",))]
    assert label.system_level == "Virtualization"
    assert label.fault_type == "Misconfiguration + Operation Error"
    first, second = label.faults
    assert [(one.fault, one.target) for one in label.faults] == [("target-port", "geo"), ("scale-to-zero", "rate")]
    for one in label.faults:
        (interval,) = one.intervals
        assert (interval.begin_ns, interval.end_ns) == (one.inject_start_ns, label.recover_start_ns)
        assert (interval.first_intensity, interval.last_intensity) == (1.0, 1.0)
    assert dict(label.parameters) == {"geo": dict(first.parameters), "rate": dict(second.parameters)}
    assert first.effective_ns is not None
    assert second.effective_ns is not None
    assert label.effective_ns == max(first.effective_ns, second.effective_ns)
    assert label.inject_start_ns == first.inject_start_ns
    injections = evidence[evidence["check"] == "injection"]
    assert list(injections["subject"]) == ["geo", "rate"]
    assert injections["passed"].all()
    assert list(find_label_problems(EpisodeView(folder).context, label)) == []


def test_two_faults_are_undone_in_reverse_order(tmp_path: Path) -> None:
    subject = runner(tmp_path, BOTH)
    assert subject.run().failure == ""
    acts = [record for record in read_journal(tmp_path / "data" / "episodes" / "abc") if "inverse" in record]
    of_faults = [
        record
        for record in acts
        if record["args"].get("name") in ("geo", "rate")
        and record["verb"] == "patch"
        and "template" not in record["args"]["change"]["spec"]  # as the rollouts before the view
    ]
    made = [record["seq"] for record in of_faults if record["state"] == "intent"]
    undone = [
        record["seq"]
        for record in read_journal(tmp_path / "data" / "episodes" / "abc")
        if record["state"] == "undone" and record["seq"] in made
    ]
    assert len(made) == 2
    assert undone == made[::-1]
    assert subject.platform.get("Deployment", "rate")["spec"]["replicas"] == 1


def test_an_episode_with_two_faults_of_which_one_is_not_confirmed_is_void_and_names_it(tmp_path: Path) -> None:
    subject = runner(tmp_path, BOTH, pressure=busy(0.0))
    second = subject.record.faults[1]
    second.spec = replace(second.spec, check=lambda platform, target, parameters, before: None)
    outcome = subject.run()
    assert "fault scale-to-zero on rate must take effect within" in outcome.failure
    assert "choose other --targets" in outcome.failure
    assert fake(subject).journal.open_undo_operations() == []
    assert not (tmp_path / "data" / "episodes" / "abc").exists()


def test_what_the_second_injection_breaks_off_undoes_the_first(tmp_path: Path) -> None:
    subject = runner(tmp_path, BOTH)

    def fail(platform, target, rng):
        raise PlatformError("the second fault cannot be made")

    subject.record.faults[1].spec = replace(subject.record.faults[1].spec, inject=fail)
    assert subject.run().failure == "the second fault cannot be made"
    assert fake(subject).journal.open_undo_operations() == []
    (port,) = subject.platform.get("Service", "geo")["spec"]["ports"]
    assert port["targetPort"] == load_app("hotel").services["geo"].port


def test_each_of_two_faults_is_repeated_in_its_own_time(tmp_path: Path) -> None:
    phases = Phases(warmup_s=0.1, baseline_s=10.0, fault_s=21.0, cooldown_s=0.1)
    subject = runner(tmp_path, replace(BOTH, phases=phases))
    made: dict[str, list[float]] = {"geo": [], "rate": []}

    def note(platform, target, rng):
        made[target].append((subject._clock.time_ns() - subject.machine.onset_ns) / SECOND)
        return {"drawn": float(rng.random())}

    for one, repeat_s in zip(subject.record.faults, (4.0, None), strict=True):
        one.spec = replace(one.spec, inject=note, repeat_s=repeat_s, check=lambda *arguments: "seen")
    subject.machine.repeats_s = (4.0,)
    outcome = subject.run()
    assert len(made["rate"]) == 1
    assert made["geo"] == pytest.approx([4.0 * n for n in range(len(made["geo"]))], abs=0.2), outcome
    assert len(made["geo"]) >= 4


def test_the_label_says_when_an_intermittent_fault_was_there(tmp_path: Path) -> None:
    subject = runner(tmp_path)
    (one,) = subject.record.faults
    one.spec = replace(
        one.spec,
        inject=lambda *arguments: {"on_s": 0.3, "off_s": 0.2},
        check=lambda *arguments: "seen",
        schedules=("intermittent",),
    )
    assert subject.run().failure == ""
    label = read_label(tmp_path / "data" / "episodes" / "abc")
    (fault,) = label.faults
    assert len(fault.intervals) > 2
    assert fault.intervals[0].begin_ns == fault.inject_done_ns
    lengths = {round((one.end_ns - one.begin_ns) / SECOND, 6) for one in fault.intervals[:-1]}
    gaps = {round((b.begin_ns - a.end_ns) / SECOND, 6) for a, b in pairwise(fault.intervals)}
    assert (lengths, gaps) == ({0.3}, {0.2})
    assert list(find_label_problems(EpisodeView(tmp_path / "data" / "episodes" / "abc").context, label)) == []


def test_a_planned_schedule_reaches_the_fault_and_the_label(tmp_path: Path) -> None:
    phases = Phases(warmup_s=0.1, baseline_s=10.0, fault_s=21.0, cooldown_s=0.1)
    plan = replace(SHORT_PLAN, fault="network-delay", target="geo", schedule="delayed", phases=phases)
    assert runner(tmp_path, plan).run().failure == ""
    folder = tmp_path / "data" / "episodes" / "abc"
    label = read_label(folder)
    (fault,) = label.faults
    assert fault.inject_done_ns is not None
    (interval,) = fault.intervals
    delay_ns = interval.begin_ns - fault.inject_done_ns
    assert delay_ns == round(fault.parameters["delay_s"] * SECOND)
    assert 2 * SECOND < delay_ns < 7 * SECOND
    assert label.onset_ns == interval.begin_ns
    assert build_truth(label, EpisodeView(folder).context).onset_ns == interval.begin_ns
