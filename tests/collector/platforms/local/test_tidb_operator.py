"""The operator on the controllers of the embedded platform, without processes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from faultset.collector.apps import load_app, tidb
from faultset.collector.apps.tidb.operator import FIRST_WAIT_S, ControlLoop, Reconciler
from faultset.collector.platforms.local.api_server import ObjectApi
from faultset.collector.runtime.cluster_api import ApiRefusal, ClusterApi
from faultset.collector.spec.manifests import manifests

ENDPOINT = "http://telemetry:4318"
FOLDER = str(Path(tidb.__file__).parent)


class Direct(ClusterApi):
    """The client, on an API server in this process."""

    def __init__(self, api: ObjectApi):
        super().__init__(lambda: pytest.fail("no connection is needed"), "shop")
        self._api = api

    def _request(self, method: str, resource: Any, name: str = "", *, query: str = "", body: Any = None) -> Any:
        root = f"/apis/{resource.api_version}" if "/" in resource.api_version else f"/api/{resource.api_version}"
        path = f"{root}/namespaces/shop/{resource.plural}{'/' if name else ''}{name}{query}"
        status, content = self._api.respond(method, path, json.loads(json.dumps(body)) if body is not None else None)
        if status >= 400:
            raise ApiRefusal(status, content["message"])
        return content


class Field:
    """A TidbCluster with its operator and cluster; all readiness probes pass."""

    def __init__(self, bench: Any):
        self.bench, self.now, self.lines = bench, 0.0, list[tuple[str, str, str]]()
        app = load_app(FOLDER)
        bench.cluster._label_key = app.label_key
        unprobed = {name: one.model_copy(update={"readiness": None}) for name, one in app.services.items()}
        self.app = app.model_copy(update={"services": unprobed})
        api = Direct(ObjectApi(bench.store, bench.cluster.events))
        loop = Reconciler(self.app, api, telemetry=ENDPOINT)
        self.loop = ControlLoop(loop, lambda *line: self.lines.append(line), lambda: self.now)
        bench.apply(*manifests(self.app, telemetry_endpoint=ENDPOINT))

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.loop.turn()
            self.bench.settle()

    def patch(self, component: str, change: Mapping[str, Any]) -> None:
        self.bench.patch("TidbCluster", "basic", {"spec": {component: change}})

    @property
    def status(self) -> dict[str, Any]:
        return self.bench.store.get("TidbCluster", "basic")["status"]

    def condition(self, kind: str) -> dict[str, Any]:
        (found,) = [one for one in self.status["conditions"] if one["type"] == kind]
        return found

    def pods(self, component: str) -> list[str]:
        found = self.bench.store.list("Pod", {"app.kubernetes.io/component": component})
        return [pod["metadata"]["name"] for pod in found]


@pytest.fixture
def field(bench: Any) -> Field:
    made = Field(bench)
    made.turn(4)
    return made


def test_a_cluster_comes_up_component_by_component(bench: Any) -> None:
    field = Field(bench)
    assert field.pods("pd") == []
    seen = []
    for _ in range(4):
        field.turn()
        seen.append([len(field.pods(name)) for name in ("pd", "tikv", "tidb")])
    assert seen[0] == [1, 0, 0]
    assert seen[-1] == [1, 3, 2]
    assert field.status["tidb"]["phase"] == "Normal"
    assert field.condition("Ready") == {
        "type": "Ready", "status": "True", "reason": "Ready", "message": "TiDB cluster is fully up and running",
    }  # fmt: skip
    assert set(bench.store.get("StatefulSet", "tikv")["metadata"]["ownerReferences"][0]) >= {"uid", "kind"}


def test_an_operator_that_finds_everything_as_wanted_changes_nothing(field: Field) -> None:
    version = field.bench.store.version
    field.turn(3)
    assert field.bench.store.version == version


def test_a_larger_number_of_replicas_reaches_the_set_and_the_status(field: Field) -> None:
    field.patch("tikv", {"replicas": 4})
    field.turn(2)
    assert field.pods("tikv") == ["tikv-0", "tikv-1", "tikv-2", "tikv-3"]
    assert field.status["tikv"]["statefulSet"]["readyReplicas"] == 4
    field.patch("tikv", {"replicas": 3})
    field.turn(2)
    assert field.pods("tikv") == ["tikv-0", "tikv-1", "tikv-2"]


def test_another_image_rolls_through_the_pods(field: Field) -> None:
    field.patch("tidb", {"image": "faultset/app:1.0.1"})
    field.turn(2)
    images = {
        pod["spec"]["containers"][0]["image"]
        for pod in field.bench.store.list("Pod")
        if "tidb-" in pod["metadata"]["name"][:5]
    }
    assert "faultset/app:1.0.1" in images
    assert field.status["tidb"]["image"] == "faultset/app:1.0.1"
    assert field.condition("Ready")["status"] == "True"


def test_more_replicas_than_the_node_can_take_leave_pods_pending(field: Field) -> None:
    field.patch("tidb", {"replicas": 100_000})
    field.turn(2)
    pods = [field.bench.store.get("Pod", name) for name in field.pods("tidb")]
    assert 3 < len(pods) < 8
    assert 'tidb_operator_cluster_spec_replicas{name="basic",component="tidb"} 100000\n' in field.loop.exposition()
    assert pods[-1]["status"]["phase"] == "Pending"
    assert field.status["tidb"]["phase"] == "Scale"
    assert field.condition("Ready")["message"] == "not in phase Normal: tidb"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tolerations": [{"key": "k", "effect": "TAKE_SOME_EFFECT"}]}, 'Unsupported value: "TAKE_SOME_EFFECT"'),
        ({"podSecurityContext": {"runAsUser": -1}}, "runAsUser: Invalid value: -1: must be between"),
    ],
)
def test_what_the_api_server_refuses_is_told_and_changes_no_pod(
    field: Field, change: dict[str, Any], words: str
) -> None:
    before = field.bench.store.get("StatefulSet", "tidb")
    field.patch("tidb", change)
    field.turn(2)
    assert field.bench.store.get("StatefulSet", "tidb") == before
    synced = field.condition("Synced")
    assert (synced["status"], synced["reason"]) == ("False", "FailedUpdateTiDBSTS")
    assert words in synced["message"]
    assert len(field.bench.messages("FailedUpdateTiDBSTS")) == 1
    field.now += FIRST_WAIT_S
    field.turn(2)
    assert len(field.bench.messages("FailedUpdateTiDBSTS")) == 2
    assert 'tidb_operator_cluster_update_errors{name="basic",component="tidb"} 2\n' in field.loop.exposition()
    field.patch("tidb", dict.fromkeys(change))
    field.turn()
    assert field.condition("Synced")["status"] == "True"
    assert [severity for severity, _, _ in field.lines].count("E") == 2


def test_the_custom_resource_is_recorded_with_what_its_operator_says(field: Field) -> None:
    field.patch("tidb", {"tolerations": [{"key": "k", "effect": "TAKE_SOME_EFFECT"}]})
    field.turn(2)
    seen = [json.loads(one.state) for one in field.bench.cluster.changes.observations if one.kind == "TidbCluster"]
    assert seen[0]["spec"]["tidb"]["replicas"] == 2
    assert "tolerations" not in seen[0]["spec"]["tidb"]
    assert seen[-1]["spec"]["tidb"]["tolerations"][0]["effect"] == "TAKE_SOME_EFFECT"
    assert seen[-1]["phases"] == {"pd": "Normal", "tikv": "Normal", "tidb": "Normal"}
    assert [one["reason"] for one in seen[-1]["conditions"]] == ["Ready", "FailedUpdateTiDBSTS"]


def test_an_update_strategy_that_nobody_knows_is_ignored(field: Field) -> None:
    field.patch("tidb", {"statefulSetUpdateStrategy": "SomeStrategyForUpdate"})
    field.turn(2)
    assert field.bench.store.get("StatefulSet", "tidb")["spec"]["updateStrategy"]["type"] == "RollingUpdate"
    field.patch("tidb", {"statefulSetUpdateStrategy": "OnDelete"})
    field.turn(2)
    assert field.bench.store.get("StatefulSet", "tidb")["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_another_storage_class_replaces_volumes_and_the_first_one_brings_them_back(field: Field) -> None:
    field.patch("pd", {"storageClassName": "nonexistent-storage-class"})
    field.turn(4)
    (pod,) = field.bench.store.list("Pod", {"app.kubernetes.io/component": "pd"})
    assert pod["status"]["phase"] == "Pending"
    claim = field.bench.store.get("PersistentVolumeClaim", "pd-pd-0")
    assert (claim["spec"]["storageClassName"], claim["status"]["phase"]) == ("nonexistent-storage-class", "Pending")
    assert field.pods("tikv") == ["tikv-0", "tikv-1", "tikv-2"]
    field.patch("pd", {"storageClassName": None})
    field.turn(5)
    (pod,) = field.bench.store.list("Pod", {"app.kubernetes.io/component": "pd"})
    assert pod["status"]["phase"] == "Running"
    assert field.condition("Ready")["status"] == "True"


def test_an_api_server_that_is_away_is_told_once(field: Field) -> None:
    field.bench.delete("CustomResourceDefinition", "tidbclusters.pingcap.com")
    field.turn(3)
    assert field.lines[-1][2] == "TidbCluster has been deleted"
