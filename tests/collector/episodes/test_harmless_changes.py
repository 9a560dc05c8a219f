"""Decoys: harmless changes that look like faults and say nothing about them."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from faultset.collector.apps import load_apps
from faultset.collector.episodes.harmless_changes import POD_KINDS, DecoySchedule, age_application, disturb
from faultset.collector.episodes.health import unready_workloads
from faultset.collector.faults.deployments import get_container
from faultset.collector.faults.registry import FaultSpec, faults, get_fault
from faultset.collector.plans.timeline import DECOY_KINDS, Decoy, draw_decoys, eligible_services
from faultset.collector.platforms.fake import FakePlatform
from faultset.collector.platforms.hosts import QUICK, Phases
from faultset.collector.platforms.journal import Journal
from faultset.collector.runtime.builds import HEALTHY, draw_builds
from faultset.collector.spec.app import Variation

APPS = {name: app for name, app in load_apps().items() if app.deployed is None}
LONG_VIEW = Phases(warmup_s=8, baseline_s=1000, fault_s=1000, cooldown_s=5)


def deployed_platform(name: str, folder: Path, seed: int = 7) -> FakePlatform:
    app = APPS[name]
    if app.operator is None:
        app = app.with_variation(Variation(seed=seed), f"faultset/app:{draw_builds(seed).healthy[0]}")
    platform = FakePlatform(app, Journal(folder / "journal.jsonl"))
    platform.deploy()
    return platform


def decoy_of(kind: str, service: str, app: Any, number: int = 0) -> Decoy:
    """Return a decoy of a kind and service, made at once."""
    kinds = [kind for kind in DECOY_KINDS if eligible_services(kind, app)]
    services = eligible_services(kind, app)  # type: ignore[arg-type]
    return Decoy(
        number=number,
        times_s=(100.0, 110.0, 120.0),
        kind_position=(kinds.index(kind) + 0.5) / len(kinds),  # type: ignore[arg-type]
        service_position=(services.index(service) + 0.5) / len(services),
        seed=5,
    )


def every_decoy(platform: FakePlatform) -> list[Decoy]:
    return [
        decoy_of(kind, service, platform.app, number)
        for number, (kind, service) in enumerate(
            (kind, service) for kind in DECOY_KINDS for service in eligible_services(kind, platform.app)
        )
    ]


@pytest.mark.parametrize("name", APPS)
def test_decoys_of_every_kind_and_service_are_made_and_undone(name: str, tmp_path: Path) -> None:
    platform = deployed_platform(name, tmp_path)
    decoys = every_decoy(platform)
    steps = list(DecoySchedule(platform, decoys, onset_s=500.0, faults={}).take_due(1000.0))
    assert {step["number"] for step in steps} == {decoy.number for decoy in decoys}
    assert all("image" in step for step in steps if step["decoy"] == "node-load" and step["step"] == 0)
    assert {step["decoy"] for step in steps} == {kind for kind in DECOY_KINDS if eligible_services(kind, platform.app)}
    platform.undo()
    assert platform.journal.open_undo_operations() == []
    if not platform.app.components:  # in memory no operator brings its components back
        platform.wait(lambda: not unready_workloads(platform), timeout_s=600, what="the undo")


@pytest.mark.parametrize("name", APPS)
def test_services_of_every_application_are_hit_by_several_kinds(name: str) -> None:
    app, rng = APPS[name], np.random.default_rng(0)
    choices = {decoy.choose(app) for _ in range(600) for decoy in draw_decoys(QUICK, 3, rng)}
    assert len({kind for kind, _ in choices}) >= 6
    assert {service for _, service in choices} == set(app.services)
    assert len({service for kind, service in choices if kind in POD_KINDS}) >= 2


@pytest.mark.parametrize(
    ("fault", "hit_after_onset"),
    {
        "target-port": {"rollout", "restart", "scale-out", "replica-restart"},
        "nonexistent-node": {"rollout", "restart", "scale-out", "replica-restart"},
        "slow-build": {"restart", "scale-out", "replica-restart"},
        "network-delay": {"scale-out", "replica-restart"},
        "scale-to-zero": {"rollout", "restart"},
        "pod-failure": set(),
        "pod-kill": set(),
        "one-bad-replica": set(),
    }.items(),
)
def test_decoys_that_would_remove_a_fault_hit_another_service(
    fault: str, hit_after_onset: set[str], tmp_path: Path
) -> None:
    platform = deployed_platform("hotel", tmp_path)
    get_fault(fault).inject_with(platform, "geo", np.random.default_rng(0), None)
    faults = {"geo": get_fault(fault)}
    hits: dict[float, set[str]] = {}
    for onset_s in (300.0, 95.0, 50.0):
        schedule = DecoySchedule(platform, [], onset_s=onset_s, faults=faults)
        choices = [schedule.choose(decoy_of(kind, "geo", platform.app)) for kind in POD_KINDS]
        assert {kind for kind, _ in choices} == POD_KINDS
        hits[onset_s] = {kind for kind, service in choices if service == "geo"}
    assert hits == {300.0: POD_KINDS, 95.0: set(), 50.0: hit_after_onset}


def inject(fault: FaultSpec, target: str, base: FakePlatform, journal: Path) -> FakePlatform:
    platform = FakePlatform.from_state(base.app, Journal(journal), base.state())
    fault.inject_with(platform, target, np.random.default_rng(0), None)
    return platform


@pytest.mark.parametrize("name", APPS)
def test_faults_in_running_pods_are_declared_as_such(name: str, tmp_path: Path) -> None:
    base = deployed_platform(name, tmp_path)
    for fault in faults().values():
        for target in fault.targets(base.app)[:1]:
            calls = inject(fault, target, base, tmp_path / f"{fault.name}.jsonl").calls
            in_pods = [call for call in calls if call[0] in ("impair", "kill") or call[:2] == ("patch", "Pod")]
            assert fault.ends_with_pods or not in_pods, fault.name


@pytest.mark.parametrize(("name", "largest_gain"), [("hotel", 0.01), ("tidb", 0.05)])
def test_a_decoy_after_the_onset_says_little_about_the_target(name: str, largest_gain: float, tmp_path: Path) -> None:
    """Bayes' rule with all true probabilities is the best guess; its gain bounds what any method can learn."""
    base = deployed_platform(name, tmp_path)
    app = base.app
    decoys = [(decoy, *decoy.choose(app)) for decoy in every_decoy(base)]
    services = Counter(kind for _, kind, _ in decoys)
    pairs = [(fault, target) for fault in faults().values() for target in fault.targets(app)[:4]]
    joint: dict[tuple[str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for number, (fault, target) in enumerate(pairs):
        schedule = DecoySchedule(
            inject(fault, target, base, tmp_path / f"{number}.jsonl"), [], onset_s=50.0, faults={target: fault}
        )
        for decoy, kind, service in decoys:
            observed = schedule.choose(decoy) if service == target else (kind, service)
            joint[observed][target] += 1 / services[kind] / len(services) / len(pairs)
    targets = Counter(target for _, target in pairs)
    assert sum(sum(share.values()) for share in joint.values()) == pytest.approx(1.0)
    gain = sum(max(share.values()) for share in joint.values()) - max(targets.values()) / len(pairs)
    assert -1e-9 < gain < largest_gain


def test_rollouts_use_healthy_tags_each_only_once(tmp_path: Path) -> None:
    platform = deployed_platform("hotel", tmp_path)
    builds = draw_builds(platform.app.variation.seed)
    decoys = [decoy_of("rollout", "geo", platform.app, number) for number in range(10)]
    images = [step["image"] for step in DecoySchedule(platform, decoys, onset_s=0.0, faults={}).take_due(1000.0)]
    tags = [image.rpartition(":")[2] for image in images]
    assert len(set(tags)) == 10
    assert set(tags) <= set(builds.healthy[1:])
    assert all(builds.defects_of(tag) == HEALTHY for tag in tags)


def readiness_delay_s(platform: FakePlatform, service: str) -> int:
    return get_container(platform, service)["readinessProbe"]["initialDelaySeconds"]


@pytest.mark.parametrize("fault", ["slow-build", "short-timeout"])
def test_healthy_and_faulty_rollouts_take_equally_long(fault: str, tmp_path: Path) -> None:
    delays: dict[str, list[int]] = {"healthy": [], "faulty": []}
    rng = np.random.default_rng(0)
    for seed in range(1, 21):
        for kind, sample in delays.items():
            folder = tmp_path / f"{kind}{seed}"
            folder.mkdir()
            platform = deployed_platform("hotel", folder, seed if kind == "healthy" else 1000 + seed)
            if kind == "healthy":
                decoy = decoy_of("rollout", "search", platform.app)
                list(DecoySchedule(platform, [decoy], onset_s=0.0, faults={}).take_due(1000.0))
            else:
                get_fault(fault).inject_with(platform, "search", rng, None)
            sample.append(readiness_delay_s(platform, "search"))
    comparison: Any = stats.ks_2samp(delays["healthy"], delays["faulty"])
    assert comparison.pvalue > 0.001
    assert max(delays["faulty"]) > 2 * np.median(delays["faulty"]) > 8


def test_delays_fit_into_short_views() -> None:
    short = [Variation(seed=seed, longest_start_s=15.0).readiness_delay_s("geo", 1) for seed in range(1000)]
    assert (min(short), max(short)) == (2, 15)


def test_the_rollout_of_a_disturbed_episode_is_of_a_healthy_build(tmp_path: Path) -> None:
    platform, rng = deployed_platform("hotel", tmp_path), np.random.default_rng(0)
    healthy = draw_builds(platform.app.variation.seed).healthy
    rollouts = [change for _ in range(20) if (change := disturb(platform, rng))["harmless_change"] == "rollout"]
    assert 0 < len(rollouts) < 20
    assert {change["image"].rpartition(":")[2] for change in rollouts} <= set(healthy)


def test_a_service_that_is_rolled_out_does_not_count_as_unready(tmp_path: Path) -> None:
    platform = deployed_platform("hotel", tmp_path)
    platform.objects["Deployment", "geo"]["status"] = {}
    assert unready_workloads(platform) == "geo not ready"
    assert unready_workloads(platform, {"geo"}) == ""
    assert unready_workloads(platform, {"rate"}) == "geo not ready"


@pytest.mark.parametrize("name", APPS)
def test_an_aged_application_has_old_replica_sets_and_nothing_to_undo(name: str, tmp_path: Path) -> None:
    platform = FakePlatform(APPS[name], Journal(tmp_path / "journal.jsonl"))
    platform.deploy()
    before = {one["metadata"]["name"] for one in platform.list("ReplicaSet")}
    assert age_application(platform, np.random.default_rng(0))
    assert {one["metadata"]["name"] for one in platform.list("ReplicaSet")} > before
    assert any(one["metadata"]["generation"] > 1 for one in platform.list("Deployment"))
    assert platform.journal.open_undo_operations()
    platform.journal.accept()
    assert platform.journal.open_undo_operations() == []


def test_restarted_services_are_not_rolled_out_at_the_same_time(tmp_path: Path) -> None:
    app = APPS["hotel"]
    base = FakePlatform(app, Journal(tmp_path / "base.jsonl"))
    base.deploy()
    for seed in range(10):
        platform = FakePlatform.from_state(app, Journal(tmp_path / f"{seed}.jsonl"), base.state())
        age_application(platform, np.random.default_rng(seed))
        rolled_out = {call[2] for call in platform.calls if call[0] == "patch"}
        killed = {pod.rpartition("-")[0].rpartition("-")[0] for verb, pod, *_ in platform.calls if verb == "kill"}
        assert rolled_out
        assert killed
        assert not rolled_out & killed
