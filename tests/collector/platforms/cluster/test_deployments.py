"""Deployments, their ReplicaSets and pods."""

from __future__ import annotations

import re

from faultset.collector.runtime.builds import TAGS

IMAGE_2 = "faultset/app:1.0.1"


def template(**container):
    return {"spec": {"template": {"spec": {"containers": [container]}}}}


def changed(bench, name, **fields):
    containers = bench.store.get("Deployment", name)["spec"]["template"]["spec"]["containers"]
    return template(**{**containers[0], **fields})


def test_pods_have_the_names_of_a_real_cluster(bench, manifest):
    bench.apply(manifest.deployment("geo"))
    assert re.fullmatch(r"geo-[bcdfghjklmnpqrstvwxz2456789]{8,10}-[bcdfghjklmnpqrstvwxz2456789]{5}", bench.name("geo"))


def test_a_deployment_starts_its_container_and_is_available_at_once(bench, manifest):
    bench.apply(manifest.deployment("geo"))
    assert bench.pod("geo")["status"]["phase"] == "Running"
    assert bench.store.get("Deployment", "geo")["status"]["availableReplicas"] == 1
    (started,) = bench.starts()
    assert started.command == ("faultset-service", "geo")
    assert (started.cpu_limit, started.memory_limit) == (1.0, 256 * 2**20)
    assert started.service == "geo"


def test_the_start_of_a_pod_leaves_the_usual_events(bench, manifest):
    bench.apply(manifest.deployment("geo"))
    reasons = bench.cluster.events.reasons
    assert reasons(bench.name("geo")) == ["Scheduled", "Pulled", "Created", "Started"]
    assert reasons("geo") == ["ScalingReplicaSet"]
    assert bench.messages("ScalingReplicaSet")[0].endswith("from 0 to 1")


def test_scaling_to_zero_stops_the_pod_and_leaves_no_endpoints(bench, manifest):
    bench.apply(manifest.deployment("geo"), manifest.service("geo"))
    bench.patch("Deployment", "geo", {"spec": {"replicas": 0}})
    assert bench.pods("geo") == []
    assert bench.store.get("Endpoints", "geo")["subsets"] == []
    assert bench.messages("SuccessfulDelete")


def test_a_rolling_update_starts_the_new_pod_before_it_ends_the_old(bench, manifest):
    bench.apply(manifest.deployment("geo"))
    old = bench.name("geo")
    bench.patch("Deployment", "geo", changed(bench, "geo", image=IMAGE_2))
    order = [type(command).__name__ for command in bench.commands]
    assert order == ["StartContainer", "StartContainer", "SignalContainer", "ForgetPod"]
    assert bench.name("geo") != old
    assert bench.container("geo")["image"] == f"docker.io/{IMAGE_2}"


def test_a_rolling_update_keeps_the_old_pod_while_the_new_one_cannot_start(bench, manifest):
    bench.apply(manifest.deployment("geo"))
    old = bench.name("geo")
    bench.patch("Deployment", "geo", changed(bench, "geo", image="faultset/nothing:1"))
    bench.advance(120)
    names = [pod["metadata"]["name"] for pod in bench.pods("geo")]
    assert len(names) == 2
    assert names[0] == old
    assert bench.store.get("Deployment", "geo")["status"]["availableReplicas"] == 1


def test_a_recreated_deployment_waits_for_the_end_of_the_old_pod(bench, manifest):
    bench.apply(manifest.deployment("geo", strategy={"type": "Recreate"}))
    old = bench.name("geo")
    bench.ignores_term.add(old)
    bench.patch("Deployment", "geo", changed(bench, "geo", image=IMAGE_2))
    bench.advance(29)
    assert len(bench.starts()) == 1
    bench.advance(2)
    assert bench.name("geo") != old
    assert len(bench.starts()) == 2


def test_going_back_uses_the_old_replica_set_again(bench, manifest):
    bench.apply(manifest.deployment("geo"))
    first = bench.name("geo").rsplit("-", 1)[0]
    bench.patch("Deployment", "geo", changed(bench, "geo", image=IMAGE_2))
    bench.patch("Deployment", "geo", changed(bench, "geo", image="faultset/app:1.0.0"))
    assert bench.name("geo").rsplit("-", 1)[0] == first
    assert len(bench.store.list("ReplicaSet")) == 2


def test_old_replica_sets_are_kept_up_to_the_history_limit(bench, manifest):
    bench.apply(manifest.deployment("geo", revisionHistoryLimit=1))
    for number in range(4):
        bench.patch("Deployment", "geo", changed(bench, "geo", image=f"faultset/app:{TAGS[number]}"))
    assert len(bench.store.list("ReplicaSet")) == 2


def test_a_change_beside_the_template_restarts_nothing(bench, manifest):
    bench.apply(manifest.deployment("geo"))
    before = bench.name("geo")
    bench.patch("Deployment", "geo", {"spec": {"revisionHistoryLimit": 3, "progressDeadlineSeconds": 400}})
    assert bench.name("geo") == before
    assert bench.store.get("Deployment", "geo")["status"]["observedGeneration"] == 2


def test_a_deleted_pod_is_replaced_at_once(bench, manifest):
    bench.apply(manifest.deployment("geo"))
    old = bench.name("geo")
    bench.delete("Pod", old, grace_period_s=0)
    assert bench.name("geo") != old
    assert bench.container("geo")["restartCount"] == 0


def test_deleting_a_deployment_takes_its_pods_along(bench, manifest):
    bench.apply(manifest.deployment("geo"))
    bench.delete("Deployment", "geo")
    bench.advance(1)
    assert bench.pods("geo") == []
    assert bench.store.list("ReplicaSet") == []
    assert bench.running == {}
