"""The controllers of Deployments, ReplicaSets and StatefulSets, on a simulated cluster."""

from __future__ import annotations

import re

import pytest

from faultset.collector.platforms.cluster.context import StartContainer
from faultset.collector.platforms.cluster.object_store import InvalidObject
from faultset.collector.platforms.cluster.workloads import REVISION_LABEL
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


def relabel(bench, name, label):
    bench.patch("Pod", name, {"metadata": {"labels": {"app": label}}})


def test_a_pod_that_loses_its_label_is_let_go_and_replaced(bench, manifest):
    bench.apply(manifest.deployment("geo"), manifest.service("geo"))
    old = bench.name("geo")
    (label,) = {bench.pod("geo")["metadata"]["labels"]["app"]}
    relabel(bench, old, "nobody")
    assert bench.store.get("Pod", old)["metadata"].get("ownerReferences") in (None, [])
    new = bench.store.list("Pod", {"app": label})
    assert len(new) == 1
    assert new[0]["metadata"]["name"] != old
    (subset,) = bench.store.get("Endpoints", "geo")["subsets"]
    assert len(subset["addresses"]) == 1


def test_a_pod_that_gets_its_label_back_is_taken_in_and_one_too_many_goes(bench, manifest):
    bench.apply(manifest.deployment("geo"))
    old = bench.name("geo")
    label = bench.pod("geo")["metadata"]["labels"]["app"]
    relabel(bench, old, "nobody")
    relabel(bench, old, label)
    assert len(bench.store.list("Pod", {"app": label})) == 1
    assert bench.messages("SuccessfulDelete")


CLAIM = {"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}


def stateful_set(manifest, name="tikv", **changes):
    made = manifest.deployment(name, **{"serviceName": f"{name}-peer", "replicas": 3, **changes})
    return {**made, "kind": "StatefulSet"}


def names(bench, service="tikv"):
    return [pod["metadata"]["name"] for pod in bench.pods(service)]


def new_image(bench, image, name="tikv"):
    containers = bench.store.get("StatefulSet", name)["spec"]["template"]["spec"]["containers"]
    bench.patch(
        "StatefulSet", name, {"spec": {"template": {"spec": {"containers": [{**containers[0], "image": image}]}}}}
    )


def test_pods_have_ordinals_as_names_and_come_in_their_order(bench, manifest):
    bench.apply(stateful_set(manifest))
    assert [start.pod for start in bench.starts()] == ["tikv-0", "tikv-1", "tikv-2"]
    status = bench.store.get("StatefulSet", "tikv")["status"]
    assert (status["replicas"], status["readyReplicas"], status["updatedReplicas"]) == (3, 3, 3)
    assert status["currentRevision"] == status["updateRevision"]
    assert bench.messages("SuccessfulCreate")[0] == "create Pod tikv-0 in StatefulSet tikv successful"


def test_a_pod_that_does_not_become_ready_holds_back_those_after_it(bench, manifest):
    bench.missing_programs.add("faultset-service")
    bench.apply(stateful_set(manifest, replicas=100_000))
    assert names(bench) == ["tikv-0"]
    bench.advance(60)
    assert names(bench) == ["tikv-0"]


def test_too_many_replicas_fill_the_node_and_no_more(bench, manifest):
    big = {"resources": {"requests": {"cpu": "4"}}}
    bench.apply(stateful_set(manifest, container=big))
    bench.patch("StatefulSet", "tikv", {"spec": {"replicas": 100_000}})
    assert names(bench) == [f"tikv-{ordinal}" for ordinal in range(5)]
    assert bench.pods("tikv")[-1]["status"]["phase"] == "Pending"
    assert "1 Insufficient cpu" in bench.messages("FailedScheduling")[-1]


def test_surplus_pods_end_from_the_highest_ordinal_one_by_one(bench, manifest):
    bench.apply(stateful_set(manifest))
    bench.ignores_term.add("tikv-2")
    bench.patch("StatefulSet", "tikv", {"spec": {"replicas": 1}})
    assert names(bench) == ["tikv-0", "tikv-1", "tikv-2"]
    bench.advance(31)
    assert names(bench) == ["tikv-0"]
    assert [message.split()[2] for message in bench.messages("SuccessfulDelete")] == ["tikv-2", "tikv-1"]


def test_a_rolling_update_replaces_pods_from_the_highest_ordinal(bench, manifest):
    bench.apply(stateful_set(manifest))
    new_image(bench, IMAGE_2)
    starts = [(start.pod, start.image) for start in bench.starts()][3:]
    assert starts == [("tikv-2", IMAGE_2), ("tikv-1", IMAGE_2), ("tikv-0", IMAGE_2)]
    status = bench.store.get("StatefulSet", "tikv")["status"]
    assert status["updatedReplicas"] == 3
    assert status["currentRevision"] == status["updateRevision"]


def test_a_rolling_update_stops_at_a_pod_that_cannot_start(bench, manifest):
    bench.apply(stateful_set(manifest))
    new_image(bench, "faultset/nothing:1")
    bench.advance(120)
    of_old = [pod for pod in bench.pods("tikv") if "nothing" not in pod["spec"]["containers"][0]["image"]]
    assert [pod["metadata"]["name"] for pod in of_old] == ["tikv-0", "tikv-1"]
    assert bench.store.get("StatefulSet", "tikv")["status"]["updatedReplicas"] == 1


def test_with_the_strategy_on_delete_only_pods_that_somebody_deletes_change(bench, manifest):
    bench.apply(stateful_set(manifest, updateStrategy={"type": "OnDelete"}))
    before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in bench.pods("tikv")}
    new_image(bench, IMAGE_2)
    assert {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in bench.pods("tikv")} == before
    bench.delete("Pod", "tikv-0")
    (new,) = [pod for pod in bench.pods("tikv") if pod["metadata"]["uid"] not in before.values()]
    assert new["metadata"]["name"] == "tikv-0"
    assert new["spec"]["containers"][0]["image"] == IMAGE_2


def test_a_deleted_pod_comes_back_under_its_name(bench, manifest):
    bench.apply(stateful_set(manifest))
    before = bench.store.get("Pod", "tikv-1")["metadata"]
    bench.delete("Pod", "tikv-1")
    after = bench.store.get("Pod", "tikv-1")["metadata"]
    assert after["uid"] != before["uid"]
    assert after["labels"][REVISION_LABEL] == before["labels"][REVISION_LABEL]


def test_each_pod_keeps_a_claim_of_its_own_when_it_is_replaced(bench, manifest):
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data/db"}]}
    bench.apply(stateful_set(manifest, volumeClaimTemplates=[CLAIM], container=mounts))
    claims = {
        claim["metadata"]["name"]: claim["metadata"]["uid"] for claim in bench.store.list("PersistentVolumeClaim")
    }
    assert set(claims) == {"data-tikv-0", "data-tikv-1", "data-tikv-2"}
    volumes = {start.pod: start.mounts[0].volume for start in bench.starts()}
    assert len(set(volumes.values())) == 3
    bench.delete("Pod", "tikv-1")
    again = [command for command in bench.commands if isinstance(command, StartContainer)][-1]
    assert again.mounts[0].volume == volumes["tikv-1"]
    assert {c["metadata"]["name"]: c["metadata"]["uid"] for c in bench.store.list("PersistentVolumeClaim")} == claims


def test_a_deleted_set_takes_its_pods_along_but_not_their_claims(bench, manifest):
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data/db"}]}
    bench.apply(stateful_set(manifest, volumeClaimTemplates=[CLAIM], container=mounts))
    bench.delete("StatefulSet", "tikv")
    assert names(bench) == []
    assert len(bench.store.list("PersistentVolumeClaim")) == 3


def test_a_change_of_what_is_fixed_is_refused_and_changes_nothing(bench, manifest):
    bench.apply(stateful_set(manifest, volumeClaimTemplates=[CLAIM]))
    before = bench.store.get("StatefulSet", "tikv")
    with pytest.raises(
        InvalidObject, match=r'StatefulSet\.apps "tikv" is invalid: spec: Forbidden: updates to stateful'
    ):
        bench.patch("StatefulSet", "tikv", {"spec": {"volumeClaimTemplates": []}})
    assert bench.store.get("StatefulSet", "tikv") == before
