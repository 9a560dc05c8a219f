"""An application with an operator on a cluster: what is made, in which order, and what is left of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from object_server import DEFINITIONS, ObjectServer

from faultset.collector.apps import load_app
from faultset.collector.platforms.journal import Journal
from faultset.collector.platforms.kubernetes import platform as module
from faultset.collector.platforms.kubernetes.client import Api
from faultset.collector.platforms.kubernetes.objects import ABANDONED_AFTER_S, RENEWED
from faultset.collector.platforms.kubernetes.platform import KubernetesPlatform
from faultset.collector.platforms.kubernetes.recovery import recover_episode, remove_orphans
from faultset.collector.platforms.kubernetes.settings import ClusterSettings
from faultset.core.errors import PlatformError

NAME = "tidbclusters.pingcap.com"
CLUSTER_WIDE = (DEFINITIONS, "namespaces", "persistentvolumes")

Make = Callable[[str], KubernetesPlatform]


@pytest.fixture
def api(object_server: ObjectServer, connect: Callable[..., Api]) -> Api:
    return connect(object_server)


@pytest.fixture
def make(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Return tidb platforms with separate folders and journals; their programs stop after the test."""
    monkeypatch.setattr(module, "discover", lambda *args, **kwargs: SimpleNamespace(otlp_http="http://jaeger:4318"))
    made: list[KubernetesPlatform] = []

    def start(episode: str) -> KubernetesPlatform:
        folder = tmp_path / episode
        folder.mkdir()
        settings = ClusterSettings(kubeconfig=str(tmp_path / "kubeconfig"), privileged=False)
        journal = Journal(folder / "journal.jsonl", durable=False)
        made.append(KubernetesPlatform(load_app("tidb"), folder, journal=journal, episode=episode, settings=settings))
        return made[-1]

    yield start
    for platform in made:
        platform._is_deployed = False
        platform.teardown()
        platform.journal.close()


def left(server: ObjectServer) -> set[tuple[str, str]]:
    return {(plural, name) for plural, _, name in server.objects if plural in CLUSTER_WIDE}


def test_definition_and_rights_are_made_before_the_operator_and_the_resource_last(
    make: Make, object_server: ObjectServer
) -> None:
    platform = make("e")
    platform.deploy()
    order = [(plural, name) for _, plural, name in object_server.changes]
    operator = "tidb-operator"
    wanted = [
        ("namespaces", platform.namespaces.app), (DEFINITIONS, NAME), ("serviceaccounts", operator),
        ("roles", operator), ("rolebindings", operator), ("deployments", operator), ("tidbclusters", "basic"),
    ]  # fmt: skip
    places = [order.index(one) for one in wanted]
    assert places == sorted(places)
    assert order[-1] == ("tidbclusters", "basic") or order[-1][0] == "namespaces", "the heartbeat goes on"
    assert platform.get("TidbCluster", "basic")["spec"]["pd"]["storageClassName"] == (
        f"{platform.namespaces.app}-pd-storage"
    )
    volumes = [one["metadata"]["name"] for one in platform.list("PersistentVolume")]
    assert volumes == ["pd-0-pv", "pd-1-pv", "tikv-0-pv", "tikv-1-pv", "tikv-2-pv", "tikv-3-pv", "tikv-4-pv",
                       "tikv-5-pv", "tikv-engine-pv"]  # fmt: skip


def test_teardown_leaves_nothing_and_the_definition_to_an_episode_that_still_runs(
    make: Make, object_server: ObjectServer
) -> None:
    first, second = make("one"), make("two")
    first.deploy()
    second.deploy()
    first.teardown()
    assert (DEFINITIONS, NAME) in left(object_server)
    assert second.get("TidbCluster", "basic")
    second.teardown()
    assert left(object_server) == set()


def test_the_journal_of_a_killed_collector_is_enough_to_remove_everything(
    make: Make, api: Api, object_server: ObjectServer
) -> None:
    platform = make("e")
    platform.deploy()
    platform._heartbeat.stop()
    recover_episode(api, platform.folder / "journal.jsonl")
    assert left(object_server) == set()
    recover_episode(api, platform.folder / "journal.jsonl")


def test_what_a_collector_of_another_machine_has_left_is_removed_with_its_definition(
    make: Make, api: Api, object_server: ObjectServer
) -> None:
    platform = make("e")
    platform.deploy()
    platform._heartbeat.stop()
    time.sleep(0.2)
    for (plural, _, _), found in object_server.objects.items():
        if plural == "namespaces":
            found["metadata"]["annotations"][RENEWED] = str(int(time.time() - ABANDONED_AFTER_S - 60))
    removed = remove_orphans(api)
    assert f"definition {NAME}" in removed
    assert left(object_server) == set()


def test_a_cluster_with_another_operator_is_refused_before_anything_is_made(
    make: Make, object_server: ObjectServer
) -> None:
    names = {"kind": "TidbCluster", "plural": "tidbclusters"}
    spec = {"group": "pingcap.com", "names": names, "versions": [{"name": "v1alpha1", "served": True}]}
    object_server.put(DEFINITIONS, {"metadata": {"name": NAME}, "spec": spec})
    with pytest.raises(PlatformError, match="already has a definition of TidbCluster"):
        make("e").deploy()
    assert object_server.changes == []
