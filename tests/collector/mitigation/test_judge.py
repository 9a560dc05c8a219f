"""The judge asks the platform no more than it must."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from faultset.collector.apps import load_app
from faultset.collector.faults.registry import get_fault
from faultset.collector.mitigation.judge import DesiredState, HealthyState, RepairJudge, find_changed_pods
from faultset.collector.platforms.fake import FakePlatform
from faultset.collector.platforms.journal import Journal


class CountingPlatform(FakePlatform):
    """Counts how often each kind of objects is listed."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.listed: Counter[str] = Counter()

    def list(self, kind: str, labels: Any = None) -> Any:
        self.listed[kind] += 1
        return super().list(kind, labels)


def test_objects_are_listed_once_for_all_that_is_asked_of_them(tmp_path: Path) -> None:
    platform = CountingPlatform(load_app("hotel"), Journal(tmp_path / "journal.jsonl"))
    platform.deploy()
    fault = get_fault("target-port")
    judge = RepairJudge(
        platform,
        fault,
        "geo",
        {"target_port": 1},
        before=None,
        healthy=HealthyState.of(platform),
        unhealthy_requests=lambda start_ns, end_ns: "",
    )
    platform.simulation.store.remove("ConfigMap", platform.list("ConfigMap")[0]["metadata"]["name"])
    platform.listed.clear()
    parts = {one.part: one for one in judge.read(0, 1)}
    platform.journal.close()
    assert parts["objects"].ok
    assert "is missing" in parts["presence"].detail
    assert {kind: platform.listed[kind] for kind in ("Service", "ConfigMap", "Secret")} == dict.fromkeys(
        ("Service", "ConfigMap", "Secret"), 1
    )


def test_a_state_does_not_differ_from_itself(platform: FakePlatform) -> None:
    state = DesiredState.of(platform)
    assert len(state.objects) > 30
    assert state.changes_to(DesiredState.of(platform)) == []
    assert state.missing_in(DesiredState.of(platform)) == []
    assert find_changed_pods(platform) == []


@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [
        ("Deployment", "geo", {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}}),
        (
            "Deployment",
            "geo",
            {"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}},
        ),
        ("Deployment", "geo", {"metadata": {"annotations": {"any": "thing"}}}),
        ("Service", "geo", {"spec": {"clusterIP": "10.0.0.9"}}),
        ("PersistentVolumeClaim", "geo-pvc", {"spec": {"volumeName": "geo-pv"}}),
    ],
)
def test_how_pods_are_replaced_and_what_the_cluster_assigns_is_free(
    platform: FakePlatform, kind: str, name: str, change: dict
) -> None:
    state = DesiredState.of(platform)
    platform.patch(kind, name, change)
    assert state.changes_to(DesiredState.of(platform)) == []


@pytest.mark.parametrize(
    ("kind", "name", "change", "sentence"),
    [
        ("Deployment", "geo", {"spec": {"replicas": 2}}, "Deployment geo: spec.replicas is 2, was 1"),
        (
            "Deployment",
            "geo",
            {"spec": {"template": {"metadata": {"annotations": {"mine": "1"}}}}},
            "spec.template.metadata.annotations.mine is 1, was nothing",
        ),
        ("Service", "geo", {"spec": {"selector": {"tier": "v2"}}}, "spec.selector.tier is v2, was nothing"),
        ("Secret", "hotel-store-accounts", {"data": {"mongodb-geo": "eA=="}}, "data.mongodb-geo is ..., was"),
    ],
)
def test_everything_else_is_a_change_with_its_place(
    platform: FakePlatform, kind: str, name: str, change: dict, sentence: str
) -> None:
    state = DesiredState.of(platform)
    platform.patch(kind, name, change)
    lines = state.changes_to(DesiredState.of(platform))
    assert len(lines) == 1
    assert sentence in lines[0]


def test_objects_that_are_gone_or_new_are_named(platform: FakePlatform) -> None:
    state = DesiredState.of(platform)
    service = platform.get("Service", "geo")
    platform.delete("Service", "geo")
    platform.apply([{**service, "metadata": {**service["metadata"], "name": "mine"}}])
    later = DesiredState.of(platform)
    assert state.missing_in(later) == [("Service", "geo")]
    assert state.changes_to(later) == ["Service mine is new"]


def test_a_pod_that_is_not_as_its_workload_wants_is_named(platform: FakePlatform) -> None:
    pod = platform.list("Pod", {"io.kompose.service": "geo"})[0]
    containers = [{**pod["spec"]["containers"][0], "image": "faultset/pause:3.9"}]
    platform.patch("Pod", pod["metadata"]["name"], {"spec": {"containers": containers}})
    (line,) = find_changed_pods(platform)
    assert line.startswith(f"Pod {pod['metadata']['name']}: hotel-reserv-geo.image is faultset/pause:3.9, expected")
