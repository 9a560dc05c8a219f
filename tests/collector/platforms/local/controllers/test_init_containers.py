"""Init containers run one after the other, and to their ends, before the others start."""

from __future__ import annotations

import pytest

from faultset.collector.platforms.local.api_server.object_store import InvalidObject
from faultset.collector.platforms.local.controllers.context import AS_ON_A_CLUSTER
from faultset.collector.platforms.observation.object_changes import WHITELISTS
from faultset.datasets.kubectl.object_tables import object_cells, pod_status

IMAGE = "faultset/app:1.0.0"


def init(name, **fields):
    return {"name": name, "image": IMAGE, "command": ["/bin/prepare", name], **fields}


@pytest.fixture
def geo(bench, manifest):
    """A cluster in which geo has two init containers."""
    bench.apply(
        manifest.deployment("geo", pod={"initContainers": [init("first"), init("second")]}), manifest.service("geo")
    )
    return bench


def started(bench):
    return [start.container for start in bench.starts()]


def conditions(bench):
    return {one["type"]: one for one in bench.pod("geo")["status"]["conditions"]}


def test_they_run_in_order_and_the_container_waits_for_the_last(geo):
    assert started(geo) == ["first"]
    status = geo.pod("geo")["status"]
    assert status["phase"] == "Pending"
    assert [next(iter(one["state"])) for one in status["initContainerStatuses"]] == ["running", "waiting"]
    assert geo.container("geo")["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert conditions(geo)["Initialized"]["reason"] == "ContainersNotInitialized"
    assert conditions(geo)["Initialized"]["message"] == "containers with incomplete status: [first second]"
    assert pod_status(geo.pod("geo")) == "Init:0/2"
    (subset,) = geo.store.get("Endpoints", "geo")["subsets"]
    assert not subset.get("addresses")
    geo.end(geo.name("geo"), 0)
    assert started(geo) == ["first", "second"]
    assert pod_status(geo.pod("geo")) == "Init:1/2"
    geo.end(geo.name("geo"), 0)
    assert started(geo) == ["first", "second", "geo-main"]
    status = geo.pod("geo")["status"]
    assert [one["state"]["terminated"]["reason"] for one in status["initContainerStatuses"]] == ["Completed"] * 2
    assert [one["ready"] for one in status["initContainerStatuses"]] == [True, True]
    assert (status["phase"], conditions(geo)["Initialized"]["status"]) == ("Running", "True")
    assert pod_status(geo.pod("geo")) == "Running"


def test_one_that_fails_is_started_again_after_a_back_off(geo):
    geo.end(geo.name("geo"), 1)
    assert started(geo) == ["first", "first"]
    geo.end(geo.name("geo"), 1)
    assert pod_status(geo.pod("geo")) == "Init:CrashLoopBackOff"
    assert object_cells(geo.pod("geo"))["RESTARTS"] == 1
    assert geo.container("geo")["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert geo.messages("BackOff")[0].startswith("Back-off restarting failed container first in pod geo-")
    geo.advance(11)
    assert started(geo) == ["first"] * 3
    geo.end(geo.name("geo"), 0)
    assert started(geo)[-1] == "second"


def test_the_end_of_one_that_fails_is_seen_until_it_starts_again(geo):
    geo.cluster.context.start_times = AS_ON_A_CLUSTER
    geo.end(geo.name("geo"), 3)
    assert pod_status(geo.pod("geo")) == "Init:Error"
    recorded = WHITELISTS["Pod"](geo.pod("geo"))
    assert recorded["initContainers"][0]["exitCode"] == 3
    geo.advance(1)
    assert started(geo) == ["first", "first"]


def test_they_do_not_run_again_when_the_container_ends(geo):
    for _ in range(2):
        geo.end(geo.name("geo"), 0)
    geo.end(geo.name("geo"), 2)
    assert started(geo) == ["first", "second", "geo-main", "geo-main"]
    geo.delete("Pod", geo.name("geo"), grace_period_s=0)
    assert started(geo)[4:] == ["first"]


def test_a_missing_key_holds_up_an_init_container_too(bench, manifest):
    env = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}}]
    bench.apply(manifest.deployment("geo", pod={"initContainers": [init("first", env=env)]}))
    assert pod_status(bench.pod("geo")) == "Init:CreateContainerConfigError"


def test_all_volumes_of_a_pod_are_there_before_the_first_of_them_runs(bench, manifest):
    volumes = [{"name": "config", "configMap": {"name": "settings"}}]
    mounts = [{"name": "config", "mountPath": "/etc/settings"}]
    pod = {"initContainers": [init("first")], "volumes": volumes}
    bench.apply(manifest.deployment("geo", pod=pod, container={"volumeMounts": mounts}))
    assert started(bench) == []
    assert pod_status(bench.pod("geo")) == "Init:0/1"
    message = 'MountVolume.SetUp failed for volume "config" : configmap "settings" not found'
    assert bench.messages("FailedMount")[0] == message
    bench.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "1"}})
    bench.advance(10)
    assert started(bench) == ["first"]


def test_a_node_must_have_what_the_largest_of_them_requests(bench, manifest):
    large = init("large", resources={"requests": {"cpu": "17"}})
    bench.apply(manifest.deployment("geo", pod={"initContainers": [large]}))
    assert "Insufficient cpu" in bench.messages("FailedScheduling")[0]


def test_more_requested_than_allowed_is_refused_as_kubernetes_does(bench, manifest):
    wrong = init("wrong", resources={"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}})
    with pytest.raises(InvalidObject) as refused:
        bench.apply(manifest.deployment("geo", pod={"initContainers": [wrong]}))
    assert str(refused.value) == (
        'Deployment.apps "geo" is invalid: spec.template.spec.initContainers[0].resources.requests: Invalid value: '
        '"2Gi": must be less than or equal to memory limit of 1Gi'
    )
