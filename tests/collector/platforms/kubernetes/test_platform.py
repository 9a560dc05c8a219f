"""Waiting for pods, and the platform on which Chaos Mesh impairs pods, on API servers on loopback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faultset.collector.apps import load_app
from faultset.collector.faults.network import is_impaired
from faultset.collector.faults.registry import get_fault
from faultset.collector.platforms.hosts import open_host
from faultset.collector.platforms.impairments import Partition
from faultset.collector.platforms.journal import Journal
from faultset.collector.platforms.kubernetes import platform as module
from faultset.collector.platforms.kubernetes import preflight, recovery
from faultset.collector.platforms.kubernetes.platform import ChaosMeshPlatform, KubernetesPlatform
from faultset.collector.platforms.kubernetes.recovery import recover_episode, remove_orphans
from faultset.collector.platforms.kubernetes.settings import ClusterSettings
from faultset.core.errors import PlatformError, UsageError


class Pods:
    """An API server with one pod, which counts list requests."""

    def __init__(self, reason: str):
        self.lists = 0
        state = {"waiting": {"reason": reason, "message": "no such thing"}}
        statuses = [{"name": "geo", "image": "faultset/app:1.0.0", "state": state}]
        self.pod = {"metadata": {"name": "geo-1"}, "status": {"phase": "Pending", "containerStatuses": statuses}}

    def __call__(self, method: str, path: str, params: dict[str, list[str]], body: bytes) -> Any:
        assert path.endswith("/pods")
        self.lists += 1
        return {"items": [self.pod], "metadata": {"resourceVersion": "1"}}


Waiting = Callable[[Pods], KubernetesPlatform]


@pytest.fixture
def waiting(connect: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Waiting:
    """Return a platform that polls without pauses, connected to an API server on loopback."""
    monkeypatch.setattr(module.KubernetesPlatform, "poll_s", 0.0)

    def make(pods: Pods) -> KubernetesPlatform:
        connect(pods)
        settings = ClusterSettings(kubeconfig=str(tmp_path / "kubeconfig"))
        journal = Journal(tmp_path / "journal.jsonl")
        journal.close()
        return KubernetesPlatform(load_app("hotel"), tmp_path, journal=journal, episode="e", settings=settings)

    return make


def after(looks: int) -> Callable[[], bool]:
    left = iter(range(looks))
    return lambda: next(left, None) is None


def test_before_the_load_every_look_sees_images_that_are_missing(waiting: Waiting) -> None:
    pods = Pods("ErrImagePull")
    with pytest.raises(PlatformError, match="faultset/app"):
        waiting(pods).wait(after(5), timeout_s=60, what="hotel to become ready")
    assert pods.lists == 1


def test_with_a_load_pods_are_listed_at_the_deadline_only(waiting: Waiting) -> None:
    pods = Pods("ErrImagePull")
    subject = waiting(pods)
    subject._load_active = True
    subject.wait(after(5), timeout_s=60, what="the fault to show")
    assert pods.lists == 0
    with pytest.raises(PlatformError, match="waiting for the fault to show; pod geo-1 is Pending: ErrImagePull"):
        subject.wait(after(5), timeout_s=-1, what="the fault to show")
    assert pods.lists == 1


def test_what_holds_already_is_not_waited_for(waiting: Waiting) -> None:
    pods = Pods("ErrImagePull")
    waiting(pods).wait(lambda: True, timeout_s=60, what="nothing")
    assert pods.lists == 0


PAUSE = "registry.example/pause:1"


class Cluster:
    """An API server with one pod, which stores experiments and injects them immediately."""

    def __init__(self, refused: Any):
        self.refused = refused
        self.experiments: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[str, str]] = []
        container = {"name": "hotel-reserv-geo", "image": "faultset/app:1.0.0"}
        labels = {"io.kompose.service": "geo"}
        self.pod: dict[str, Any] = {
            "kind": "Pod",
            "metadata": {"name": "geo-1", "uid": "u", "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"containers": [container]},
            "status": {"phase": "Running", "containerStatuses": [{"image": PAUSE, "restartCount": 1, "state": {}}]},
        }

    def __call__(self, method: str, path: str, params: dict[str, list[str]], body: bytes) -> Any:
        self.calls.append((method, path))
        if "/chaos-mesh.org/" in path:
            return self._chaos(method, path.rpartition("/")[2], body)
        if path.endswith("/pods"):
            return {"items": [self.pod], "metadata": {"resourceVersion": "1"}}
        if path.endswith("/pods/geo-1"):
            return self.pod
        if path == "/api/v1/namespaces":
            labels = {"faultset.dev/injector": "chaos-mesh", "faultset.dev/pair": "hotel-1"}
            return {"items": [{"metadata": {"name": "hotel-1-control", "labels": labels, "annotations": {}}}]}
        if method == "DELETE":
            return {}
        if path.endswith("/persistentvolumes"):
            return {"items": []}
        raise self.refused(404, {"kind": "Status", "message": "not found", "code": 404})

    def _chaos(self, method: str, name: str, body: bytes) -> Any:
        if method == "POST":
            made = json.loads(body)
            conditions = [{"type": kind, "status": "True"} for kind in ("Selected", "AllInjected")]
            self.experiments[made["metadata"]["name"]] = {**made, "status": {"conditions": conditions}}
            if made["spec"].get("action") == "pod-failure":
                self.pod["spec"]["containers"][0]["image"] = PAUSE
            return made
        if name.endswith("chaos"):
            return {"items": [one for one in self.experiments.values() if one["kind"].lower() == name]}
        if name not in self.experiments:
            raise self.refused(404, {"kind": "Status", "message": "not found", "code": 404})
        return self.experiments.pop(name) if method == "DELETE" else self.experiments[name]

    @property
    def actions(self) -> list[str]:
        return [one["spec"]["action"] for one in self.experiments.values()]


@pytest.fixture
def cluster(refused: Any) -> Cluster:
    return Cluster(refused)


@pytest.fixture
def platform(cluster: Cluster, connect: Callable[..., Any], tmp_path: Path) -> ChaosMeshPlatform:
    connect(cluster)
    host = open_host("kubernetes", {"kubeconfig": str(tmp_path / "kubeconfig"), "injector": "chaos-mesh"})
    journal = Journal(tmp_path / "journal.jsonl", durable=False)
    made = host.create_platform(load_app("hotel"), tmp_path, journal, episode="e", seed=1, step_s=1.0)
    assert isinstance(made, ChaosMeshPlatform)
    return made


def test_a_pod_is_impaired_seen_to_be_and_undone_by_the_journal(
    platform: ChaosMeshPlatform, cluster: Cluster, tmp_path: Path
) -> None:
    platform.impair("geo-1", Partition())
    assert cluster.actions == ["partition"]
    evidence = is_impaired(platform, "geo", {"pod": "geo-1"}, None)
    assert evidence == "NetworkChaos partition is injected into geo-1"
    assert platform.impaired_packets("geo-1") == 0
    platform.undo()
    assert cluster.actions == []
    assert is_impaired(platform, "geo", {"pod": "geo-1"}, None) is None


def test_pod_failure_is_chaos_mesh_s_and_its_image_is_what_the_check_looks_for(
    platform: ChaosMeshPlatform, cluster: Cluster
) -> None:
    spec = get_fault("pod-failure")
    parameters = dict(spec.inject(platform, "geo", np.random.default_rng(1)))
    assert parameters == {"pod": "geo-1", "image": PAUSE}
    assert cluster.actions == ["pod-failure"]
    assert spec.check(platform, "geo", parameters, None) is None
    cluster.pod["status"]["containerStatuses"][0]["state"] = {"running": {}}
    assert spec.check(platform, "geo", parameters, None) == f"geo runs {PAUSE}, restart 1"
    cluster.pod["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
    assert (
        spec.check(platform, "geo", parameters, None) == f"geo cannot start its program in {PAUSE} (CrashLoopBackOff)"
    )
    platform.undo()
    assert cluster.actions == []


def test_the_host_asks_what_chaos_mesh_can_do_here(
    platform: ChaosMeshPlatform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"delay": "this cluster cannot do delay: no netem", "abort": "no proxy"}
    monkeypatch.setattr(preflight, "unsupported_needs", lambda api, image: (own, True))
    host = open_host("kubernetes", {"kubeconfig": str(tmp_path / "kubeconfig"), "injector": "chaos-mesh"})
    needs = ("partition", "loss", "abort", "kill")
    assert host.unsupported_needs(needs) == {
        "loss": "Chaos Mesh uses netem for loss, and this cluster cannot do delay: no netem"
    }


def test_pods_and_containers_are_killed_by_chaos_mesh_and_other_deletions_are_not(
    platform: ChaosMeshPlatform, cluster: Cluster
) -> None:
    platform.delete("Pod", "geo-1", grace_period_s=0)
    platform.kill("geo-1")
    made = [path for method, path in cluster.calls if method == "POST"]
    assert [path.rpartition("/")[2] for path in made] == ["podchaos", "podchaos"]
    assert cluster.experiments == {}
    platform.delete("Pod", "geo-1")
    assert ("DELETE", f"/api/v1/namespaces/{platform.namespaces.app}/pods/geo-1") in cluster.calls


def test_only_chaos_mesh_fails_pods_by_itself_and_tells_no_requests_apart(
    platform: ChaosMeshPlatform, cluster: Cluster, tmp_path: Path
) -> None:
    own = KubernetesPlatform(
        load_app("hotel"),
        tmp_path,
        journal=Journal(tmp_path / "other.jsonl", durable=False),
        episode="e",
        settings=ClusterSettings(kubeconfig=str(tmp_path / "kubeconfig")),
    )
    assert own.fail("geo-1") is None
    assert own.selects_requests
    assert not platform.selects_requests


def test_without_privileged_pods_no_ephemeral_container_is_added(
    cluster: Cluster, connect: Callable[..., Any], tmp_path: Path
) -> None:
    connect(cluster)
    platform = ChaosMeshPlatform(
        load_app("hotel"),
        tmp_path,
        journal=Journal(tmp_path / "journal.jsonl", durable=False),
        episode="e",
        settings=ClusterSettings(kubeconfig=str(tmp_path / "kubeconfig"), privileged=False),
    )
    assert platform._ephemeral is None


def test_recovery_removes_what_a_killed_episode_left_before_its_namespaces(
    platform: ChaosMeshPlatform, cluster: Cluster, tmp_path: Path
) -> None:
    platform.impair("geo-1", Partition())
    journal = Journal(tmp_path / "left.jsonl", durable=False)
    journal.note(recovery.INJECTOR_NOTE, name="chaos-mesh")
    journal.note("namespaces", app="hotel-1", control="hotel-1-control", created=True)
    journal.close()
    recover_episode(platform.api, tmp_path / "left.jsonl")
    assert cluster.experiments == {}
    deleted = [path for method, path in cluster.calls if method == "DELETE"]
    assert "networkchaos" in deleted[0]
    assert "/api/v1/namespaces/hotel-1-control" in deleted


def test_orphans_lose_their_experiments_too(
    platform: ChaosMeshPlatform, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform.impair("geo-1", Partition())
    assert remove_orphans(platform.api) == ["namespace hotel-1-control"]
    assert cluster.experiments == {}


def test_an_injector_that_does_not_exist_or_a_platform_without_one_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r'injector "litmus".*agent, chaos-mesh'):
        open_host("kubernetes", {"injector": "litmus"})
    with pytest.raises(UsageError, match="platform local does not support --injector"):
        open_host("local", {"injector": "chaos-mesh"})
