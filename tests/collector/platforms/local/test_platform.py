"""The local platform with real processes: a small application of a registry and a database."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from faultset.collector.platforms.cluster.object_store import ObjectNotFound
from faultset.collector.platforms.impairments import Delay, Loss, Partition
from faultset.collector.platforms.journal import Journal
from faultset.collector.platforms.local.platform import LocalPlatform
from faultset.collector.runtime.app_code import read_app
from faultset.collector.runtime.stores.server import admin_command
from faultset.collector.spec.credentials import decoded
from faultset.core.errors import PlatformError

SHOP = """
name: shop
title: Shop
version: 1.0.0
image: faultset/app:1.0.0
code: faultset.collector.apps.hotel
registry: registry
entry: [registry, 8500]
services:
  registry: {kind: infrastructure, container: registry-main, program: [faultset-service, registry], runs: consul,
             port: 8500}
  cart-db: {kind: database, container: cart-mongo, program: [faultset-store, mongodb], port: 27017, claim: cart-pvc}
requests:
  leader: {method: GET, path: /v1/status/leader, parameters: {}}
mixes:
  default: {title: one kind of request, shares: {leader: 1.0}}
default_mix: default
"""
FACTOR = 0.02
TIMEOUT_S = 30.0


class Shop:
    """A deployed platform, with shorthands for tests."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.journal = Journal(folder / "journal.jsonl")
        self.platform = LocalPlatform(
            read_app(SHOP, "test"),
            folder / "scratch",
            journal=self.journal,
            seed=5,
            back_off_factor=FACTOR,
            telemetry=False,
        )

    def pods(self, service: str) -> list[dict]:
        found = self.platform.list("Pod", {"app": service})
        return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]

    def pod(self, service: str) -> str:
        (only,) = self.pods(service)
        return only["metadata"]["name"]

    def container(self, service: str) -> dict:
        return self.pods(service)[-1]["status"]["containerStatuses"][0]

    def until(self, condition, what: str = "what the test waits for") -> None:
        self.platform.wait(condition, timeout_s=TIMEOUT_S, what=what)

    def leader(self) -> str | None:
        """Query the registry as a client; None if it refuses."""
        address = self.platform.get("Service", "registry")["spec"]["clusterIP"]
        try:
            with urllib.request.urlopen(f"http://{address}:8500/v1/status/leader", timeout=5) as response:
                return json.load(response)
        except (urllib.error.URLError, ConnectionError):
            return None

    def settle(self) -> None:
        self.until(lambda: self.leader() is not None, "the registry to answer")
        self.until(lambda: "PONG" in self.store("PING"), "the database to answer")

    def store(self, *words: str) -> str:
        """Query the database as its administrator; None if it refuses."""
        address = self.platform.get("Service", "cart-db")["spec"]["clusterIP"]
        password = decoded(self.platform.get("Secret", "cart-db-credentials")["data"]["administrator"])
        try:
            with socket.create_connection((address, 27017), timeout=5) as connection:
                connection.sendall(f"AUTH root {password}\r\n{' '.join(words)}\r\nQUIT\r\n".encode())
                answer = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
        except OSError:
            return ""
        return answer.removeprefix("+OK\r\n").removesuffix("+OK\r\n")

    def restarts(self) -> int:
        return self.container("registry")["restartCount"]

    def reasons(self, kind: str) -> list[str]:
        source = self.platform.sources["events"]
        rows = [row for batch in source.snapshot(0, time.time_ns()) for row in batch.to_pylist()]
        return [row["reason"] for row in rows if row["kind"] == kind]


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    made = Shop(tmp_path_factory.mktemp("shop"))
    try:
        made.platform.deploy()
        made.settle()
        yield made
    finally:
        made.platform.teardown()
        made.journal.close()


@pytest.fixture
def shop(deployed):
    """The deployed shop; changes are undone after each test."""
    yield deployed
    deployed.platform.undo()
    deployed.settle()


def test_a_client_reaches_the_pods_through_the_service(shop):
    pod = shop.platform.get("Pod", shop.pod("registry"))
    assert shop.leader() == f"{pod['status']['podIP']}:8300"


def test_a_wrong_target_port_is_refused_and_undone(shop):
    shop.platform.patch("Service", "registry", {"spec": {"ports": [{"port": 8500, "targetPort": 9999}]}})
    shop.until(lambda: shop.leader() is None)
    shop.platform.undo()
    shop.until(lambda: shop.leader() is not None)
    assert shop.restarts() == 0


def test_a_deployment_scaled_to_zero_is_refused_and_undone(shop):
    before = shop.pod("registry")
    shop.platform.patch("Deployment", "registry", {"spec": {"replicas": 0}})
    shop.until(lambda: not shop.platform.list("Pod", {"app": "registry"}))
    shop.until(lambda: shop.leader() is None)
    shop.platform.undo()
    shop.until(lambda: shop.leader() is not None)
    assert shop.pod("registry") != before


def test_a_deleted_service_is_an_unknown_name_and_comes_back(shop):
    hosts = shop.platform.folder / "hosts.json"
    shop.platform.delete("Service", "registry")
    assert "registry" not in json.loads(hosts.read_text())
    shop.platform.undo()
    assert "registry" in json.loads(hosts.read_text())
    shop.until(lambda: shop.leader() is not None)


def test_a_killed_container_is_restarted_in_its_pod(shop):
    pod, before = shop.pod("registry"), shop.restarts()
    shop.platform.kill(pod)
    shop.until(lambda: shop.restarts() > before)
    assert shop.pod("registry") == pod
    assert shop.container("registry")["lastState"]["terminated"]["exitCode"] == 137


def test_kills_in_a_row_lead_to_a_crash_loop_and_undo_ends_it(shop):
    def waits() -> bool:
        container = shop.container("registry")
        if container["state"].get("running"):
            # the status may lag behind a container that has just died
            with contextlib.suppress(PlatformError):
                shop.platform.kill(shop.pod("registry"))
        return container["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff"

    shop.until(waits)
    shop.until(lambda: shop.leader() is None)
    assert "BackOff" in shop.reasons("Pod")
    shop.platform.undo()
    shop.until(lambda: shop.leader() is not None)


def test_another_image_in_place_keeps_the_pod_and_undo_brings_the_old_one_back(shop):
    shop.platform.delete("Pod", shop.pod("registry"), grace_period_s=0)
    shop.settle()
    pod, before = shop.pod("registry"), shop.restarts()
    containers = shop.platform.get("Pod", pod)["spec"]["containers"]
    containers[0]["image"] = "faultset/pause:3.9"
    shop.platform.patch("Pod", pod, {"spec": {"containers": containers}})
    shop.until(lambda: shop.container("registry")["restartCount"] == before + 1 and shop.leader() is None)
    assert shop.container("registry")["ready"]
    shop.platform.undo()
    shop.until(lambda: shop.leader() is not None)
    assert (shop.pod("registry"), shop.restarts()) == (pod, before + 2)


def test_a_rolling_update_is_never_without_a_ready_pod(shop):
    containers = shop.platform.get("Deployment", "registry")["spec"]["template"]["spec"]["containers"]
    containers[0]["image"] = "faultset/app:1.0.1"
    before = shop.pod("registry")
    shop.platform.patch("Deployment", "registry", {"spec": {"template": {"spec": {"containers": containers}}}})
    seen: list[int] = []

    def is_done() -> bool:
        subsets = shop.platform.get("Endpoints", "registry")["subsets"]
        seen.append(sum(len(subset["addresses"]) for subset in subsets))
        return [pod["metadata"]["name"] for pod in shop.platform.list("Pod", {"app": "registry"})] != [before] and len(
            shop.platform.list("Pod", {"app": "registry"})
        ) == 1

    shop.until(is_done)
    assert min(seen) >= 1
    assert shop.platform.exec(shop.pod("registry"), ["sh", "-c", "echo $FAULTSET_BUILD"]) == "1.0.1\n"


def test_an_unknown_program_fails_as_on_a_cluster(shop):
    containers = shop.platform.get("Deployment", "registry")["spec"]["template"]["spec"]["containers"]
    containers[0]["command"] = ["registri"]
    change = {"strategy": {"type": "Recreate", "rollingUpdate": None}, "template": {"spec": {"containers": containers}}}
    shop.platform.patch("Deployment", "registry", {"spec": change})
    shop.until(lambda: shop.pods("registry") and shop.container("registry")["restartCount"] >= 1)
    ended = shop.container("registry")["lastState"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("StartError", 128)


@pytest.mark.slow
def test_what_is_changed_by_a_command_is_undone_by_a_command(shop):
    shop.platform.exec(
        shop.pod("cart-db"),
        admin_command("mongodb", "remove-account", port=27017, password=False),
        undo=admin_command("mongodb", "create-account", port=27017, password=False),
    )
    assert "app" not in shop.store("ACL", "USERS")
    shop.platform.delete("Pod", shop.pod("cart-db"), grace_period_s=0)
    shop.platform.undo()
    shop.settle()
    assert "app" in shop.store("ACL", "USERS")


def test_a_command_that_fails_says_what_it_printed(shop):
    with pytest.raises(PlatformError, match=r"sh in pod registry-\S+ ended with code 7: it broke"):
        shop.platform.exec(shop.pod("registry"), ["sh", "-c", "echo it broke; exit 7"])


def test_a_claim_made_anew_waits_for_its_released_volume_and_undo_binds_it(shop):
    shop.store("SET", "kept", "yes")
    platform = shop.platform
    claim = platform.get("PersistentVolumeClaim", "cart-pvc")
    platform.patch("Deployment", "cart-db", {"spec": {"replicas": 0}})
    shop.until(lambda: not platform.list("Pod", {"app": "cart-db"}))
    platform.delete("PersistentVolumeClaim", "cart-pvc")
    del claim["spec"]["volumeName"]
    platform.apply([claim])
    platform.patch("Deployment", "cart-db", {"spec": {"replicas": 1}})
    assert platform.get("PersistentVolumeClaim", "cart-pvc")["status"]["phase"] == "Pending"
    assert shop.pods("cart-db")[0]["status"]["phase"] == "Pending"
    assert "ProvisioningFailed" in shop.reasons("PersistentVolumeClaim")
    platform.undo()
    shop.settle()
    assert "yes" in shop.store("GET", "kept")


@pytest.mark.parametrize("impairment", [Loss(probability=0.5), Delay(latency_s=0.05), Partition()])
def test_an_impairment_disturbs_packets_until_it_is_undone(shop, impairment):
    pod = shop.pod("registry")
    assert shop.platform.impaired_packets(pod) == 0
    shop.platform.impair(pod, impairment)
    if not isinstance(impairment, Partition):
        shop.until(lambda: shop.leader() is not None and shop.platform.impaired_packets(pod) > 0)
    shop.platform.undo()
    assert shop.platform.impaired_packets(pod) == 0


def test_the_load_is_recorded_request_by_request(shop):
    source = shop.platform.sources["requests"]

    def rows() -> list[dict]:
        return [row for batch in source.snapshot(0, time.time_ns()) for row in batch.to_pylist()]

    shop.platform.start_load(seed=1, rate_rps=100, mix="default")
    shop.until(lambda: "ok" in {row["outcome"] for row in rows()})
    shop.platform.step_load(2.0)
    shop.platform.stop_load()
    assert {row["endpoint"] for row in rows()} == {"GET /v1/status/leader"}
    shop.platform.stop_load()


def test_logs_of_killed_containers_are_kept(shop):
    pod, before = shop.pod("registry"), shop.restarts()
    shop.platform.kill(pod)
    shop.until(lambda: shop.restarts() > before and shop.leader() is not None)
    source = shop.platform.sources["logs"]
    rows = [row for batch in source.snapshot(0, time.time_ns()) for row in batch.to_pylist()]
    mine = [row for row in rows if row["pod"] == pod]
    assert {row["service"] for row in mine} == {"registry"}
    assert sum("Starting agent" in row["message"] for row in mine) >= 2
    assert {"info"} <= {row["level"] for row in mine}


def test_waiting_without_success_names_what_is_not_ready(shop):
    containers = shop.platform.get("Deployment", "registry")["spec"]["template"]["spec"]["containers"]
    containers[0]["image"] = "shop/registry:9"
    change = {"strategy": {"type": "Recreate", "rollingUpdate": None}, "template": {"spec": {"containers": containers}}}
    shop.platform.patch("Deployment", "registry", {"spec": change})
    shop.until(lambda: shop.pods("registry"))
    with pytest.raises(PlatformError) as caught:
        shop.platform.wait(lambda: False, timeout_s=0.1, what="the moon")
    assert "timed out after 0.1 s waiting for the moon" in str(caught.value)
    assert "pod registry-" in str(caught.value)
    assert "ImagePull" in str(caught.value)


def test_unknown_objects_are_named(shop):
    with pytest.raises(ObjectNotFound, match='Service "geo" not found'):
        shop.platform.get("Service", "geo")
    with pytest.raises(ObjectNotFound):
        shop.platform.patch("Deployment", "geo", {"spec": {}})


def test_undo_twice_does_no_harm(shop):
    shop.platform.patch("Deployment", "registry", {"spec": {"revisionHistoryLimit": 3}})
    shop.platform.undo()
    shop.platform.undo()
    assert shop.platform.get("Deployment", "registry")["spec"]["revisionHistoryLimit"] == 10


def test_the_host_load_is_measured(shop):
    load = shop.platform.measure_host_load()
    assert load.load_average >= 0
    assert load.worst_ms == load.worst_delay_ms >= 0
    assert load.worst_scrape_lag_ms is None


@pytest.mark.slow
def test_nothing_is_left_after_teardown_and_the_folder_can_be_used_again(tmp_path):
    shop = Shop(tmp_path)
    for _ in range(2):
        shop.platform.deploy()
        shop.settle()
        family = psutil.Process().children(recursive=True)
        mine = [process for process in family if _works_in(process, tmp_path)]
        assert len(mine) >= 4
        shop.platform.teardown()
        shop.platform.teardown()
        assert not [process for process in mine if process.is_running()]
    left = {path.name for path in (tmp_path / "scratch").iterdir()}
    assert left <= {"logs", "processes", "load"}
    with pytest.raises(PlatformError, match="nothing is deployed; call deploy first"):
        shop.platform.get("Service", "registry")
    shop.journal.close()


def _works_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return Path(process.cwd()).is_relative_to(folder)
    except (psutil.Error, OSError):
        return False


def test_without_redis_the_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    shop = Shop(tmp_path)
    with pytest.raises(PlatformError, match="stores need a Redis server"):
        shop.platform.deploy()
    shop.journal.close()


@pytest.mark.slow
def test_when_the_node_dies_its_pods_die_too_and_teardown_finds_the_rest(tmp_path):
    shop = Shop(tmp_path)
    shop.platform.deploy()
    shop.platform.exec(shop.pod("registry"), ["sh", "-c", "setsid sleep 300 & :"])
    (node,) = [found for found in psutil.Process().children() if found.name() == "node" and _works_in(found, tmp_path)]
    family = node.children(recursive=True)
    assert len(family) == 3
    os.kill(node.pid, 9)
    with pytest.raises(PlatformError, match="node"):
        shop.platform.wait(lambda: False, timeout_s=TIMEOUT_S, what="the end of the node")
    shop.platform.teardown()
    _, alive = psutil.wait_procs(family, timeout=TIMEOUT_S)
    assert alive == []
    shop.journal.close()


@pytest.mark.slow
def test_when_the_relay_dies_every_verb_says_so(tmp_path):
    shop = Shop(tmp_path)
    shop.platform.deploy()
    (relay,) = [
        found for found in psutil.Process().children() if found.name() == "relay" and _works_in(found, tmp_path)
    ]
    os.kill(relay.pid, 9)
    with pytest.raises(PlatformError, match="relay ended with code -9"):
        shop.platform.wait(lambda: False, timeout_s=TIMEOUT_S, what="the end of the relay")
    shop.platform.teardown()
    shop.journal.close()
