"""The namespaces of episodes, their objects, and shared definitions of custom resources."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from object_server import DEFINITIONS, ObjectServer

from faultset.collector.apps import load_app
from faultset.collector.platforms.kubernetes import objects
from faultset.collector.platforms.kubernetes.client import Api
from faultset.collector.platforms.kubernetes.objects import (
    EPISODE,
    MANAGED,
    USER_PREFIX,
    Objects,
    SharedDefinition,
    await_removal_of_episodes,
    create_namespace,
    delete_namespaces,
    list_namespaces,
    remove_namespaces,
    remove_unused,
)
from faultset.core.errors import PlatformError


@pytest.fixture
def api(object_server: ObjectServer, connect: Callable[..., Api]) -> Api:
    return connect(object_server)


def left(api: Api) -> set[str]:
    return {found["metadata"]["name"] for found in list_namespaces(api)}


def test_an_episode_deletes_its_namespaces_and_its_campaign_waits_for_their_end(
    api: Api, object_server: ObjectServer
) -> None:
    object_server.removal_s = 0.6
    create_namespace(api, "hotel-1", {EPISODE: "one"})
    delete_namespaces(api, ["hotel-1"])
    assert left(api) == {"hotel-1"}
    await_removal_of_episodes(api, {"one"})
    assert left(api) == set()


def test_a_campaign_waits_for_no_other_episode(api: Api, object_server: ObjectServer) -> None:
    object_server.removal_s = 30.0
    create_namespace(api, "hotel-1", {EPISODE: "of-another-campaign"})
    create_namespace(api, "hotel-2", {EPISODE: "one"})
    delete_namespaces(api, ["hotel-1"])
    began = time.monotonic()
    await_removal_of_episodes(api, {"one"})
    assert time.monotonic() - began < 10.0
    assert left(api) == {"hotel-1", "hotel-2"}


def test_a_namespace_that_does_not_end_is_named(api: Api, object_server: ObjectServer) -> None:
    object_server.removal_s = 30.0
    create_namespace(api, "hotel-1", {EPISODE: "one"})
    with pytest.raises(PlatformError, match=r"hotel-1 is still terminating after 0.3 s .*faultset recover"):
        remove_namespaces(api, ("hotel-1",), timeout_s=0.3)


def test_volumes_carry_the_namespace_in_the_cluster_and_not_in_the_records() -> None:
    objects = Objects(None, "hotel-1", own_volumes=True)  # type: ignore[arg-type]
    volume = {"kind": "PersistentVolume", "metadata": {"name": "geo-pv"}, "spec": {"storageClassName": "geo-storage"}}
    stored = objects.to_stored(volume)
    assert (stored["metadata"]["name"], stored["spec"]["storageClassName"]) == ("hotel-1-geo-pv", "hotel-1-geo-storage")
    assert objects.to_manifest(stored) == volume
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "geo-pvc"}, "spec": {"volumeName": "geo-pv"}}
    assert objects.to_stored(claim)["spec"]["volumeName"] == "hotel-1-geo-pv"
    assert objects.to_manifest(objects.to_stored(claim)) == claim


TIDB, HOTEL = load_app("tidb"), load_app("hotel")
NAME = "tidbclusters.pingcap.com"


@pytest.fixture
def cluster(object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> ObjectServer:
    monkeypatch.setattr(objects, "_PAUSE_S", 0.001)
    for name in ("tidb-1", "tidb-2"):
        object_server.put("namespaces", {"metadata": {"name": name}})
    return object_server


def definition(cluster: ObjectServer) -> dict[str, Any]:
    return cluster.objects[DEFINITIONS, "", NAME]


def end(cluster: ObjectServer, namespace: str) -> None:
    cluster.objects.pop(("namespaces", "", namespace))


def test_the_first_episode_makes_it_and_the_last_one_removes_it(cluster: ObjectServer, api: Api) -> None:
    first, second = (SharedDefinition(api, TIDB, name) for name in ("tidb-1", "tidb-2"))
    first.acquire()
    assert definition(cluster)["metadata"]["labels"] == MANAGED
    assert definition(cluster)["spec"]["names"]["kind"] == "TidbCluster"
    second.acquire()
    assert set(definition(cluster)["metadata"]["annotations"]) == {f"{USER_PREFIX}tidb-1", f"{USER_PREFIX}tidb-2"}
    assert [verb for verb, plural, _ in cluster.changes if plural == DEFINITIONS] == ["POST", "PATCH"]
    end(cluster, "tidb-1")
    first.release()
    assert cluster.named(DEFINITIONS) == {NAME}
    end(cluster, "tidb-2")
    second.release()
    second.release()
    assert cluster.named(DEFINITIONS) == set()


def test_an_episode_that_enters_itself_during_the_removal_keeps_it(cluster: ObjectServer, api: Api) -> None:
    first, second = (SharedDefinition(api, TIDB, name) for name in ("tidb-1", "tidb-2"))
    first.acquire()
    end(cluster, "tidb-1")

    def overtake(method: str, plural: str, name: str) -> None:
        if method == "DELETE":
            cluster.before = lambda *asked: None
            second.acquire()

    cluster.before = overtake
    first.release()
    assert cluster.named(DEFINITIONS) == {NAME}
    assert ("DELETE", DEFINITIONS, NAME) in cluster.changes, "it was tried, and the server refused it"


def test_one_that_is_being_removed_is_waited_for_and_made_again(cluster: ObjectServer, api: Api) -> None:
    SharedDefinition(api, TIDB, "tidb-1").acquire()
    definition(cluster)["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    looks = iter(range(3))

    def vanish(method: str, plural: str, name: str) -> None:
        if plural == DEFINITIONS and next(looks, None) is None:
            cluster.before = lambda *asked: None
            del cluster.objects[DEFINITIONS, "", NAME]

    cluster.before = vanish
    SharedDefinition(api, TIDB, "tidb-2").acquire()
    assert set(definition(cluster)["metadata"]["annotations"]) == {f"{USER_PREFIX}tidb-2"}


def test_two_episodes_that_make_it_at_once_both_use_it(cluster: ObjectServer, api: Api) -> None:
    first, second = (SharedDefinition(api, TIDB, name) for name in ("tidb-1", "tidb-2"))

    def overtake(method: str, plural: str, name: str) -> None:
        if method == "POST":
            cluster.before = lambda *asked: None
            second.acquire()

    cluster.before = overtake
    first.acquire()
    assert set(definition(cluster)["metadata"]["annotations"]) == {f"{USER_PREFIX}tidb-1", f"{USER_PREFIX}tidb-2"}


def test_objects_of_others_keep_it(cluster: ObjectServer, api: Api) -> None:
    first = SharedDefinition(api, TIDB, "tidb-1")
    first.acquire()
    cluster.put("tidbclusters", {"metadata": {"name": "mine"}}, "elsewhere")
    end(cluster, "tidb-1")
    first.release()
    assert cluster.named(DEFINITIONS) == {NAME}
    del cluster.objects["tidbclusters", "elsewhere", "mine"]
    assert remove_unused(api, NAME)


def test_a_definition_of_somebody_else_is_refused_and_stays(cluster: ObjectServer, api: Api) -> None:
    names = {"kind": "TidbCluster", "plural": "tidbclusters"}
    spec = {"group": "pingcap.com", "names": names, "versions": [{"name": "v1alpha1", "served": True}]}
    cluster.put(DEFINITIONS, {"metadata": {"name": NAME}, "spec": spec})
    subject = SharedDefinition(api, TIDB, "tidb-1")
    for act in (subject.check, subject.acquire):
        with pytest.raises(PlatformError, match=r"already has a definition of TidbCluster .* app file with"):
            act()
    subject.release()
    assert cluster.changes == []


def test_one_that_is_never_served_is_named(cluster: ObjectServer, api: Api) -> None:
    SharedDefinition(api, TIDB, "tidb-1").acquire()
    definition(cluster)["status"] = {"conditions": [{"type": "Established", "status": "False"}]}
    with pytest.raises(PlatformError, match=f"the cluster does not serve {NAME} after 0.05 s"):
        SharedDefinition(api, TIDB, "tidb-1").acquire(timeout_s=0.05)


def test_an_application_without_an_operator_asks_for_nothing(cluster: ObjectServer, api: Api) -> None:
    subject = SharedDefinition(api, HOTEL, "hotel-1")
    subject.check()
    subject.acquire()
    subject.release()
    assert (subject.name, subject.labels, sum(api.requests.values())) == (None, {}, 0)
