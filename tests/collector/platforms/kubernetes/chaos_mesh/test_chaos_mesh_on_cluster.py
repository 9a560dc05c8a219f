"""Chaos Mesh on a real cluster: traffic between two pods, kills, leases, and what its kernel cannot do."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from datagrams import ECHO, RECEIVER, SENDER, answered, is_gone, until

from faultset.collector.platforms.impairments import Bandwidth, Loss, Partition
from faultset.collector.platforms.kubernetes.chaos_mesh.experiments import (
    PLURALS,
    RESOURCES,
    ChaosMeshImpairer,
    path_of_experiment,
    remove_all,
)
from faultset.collector.platforms.kubernetes.chaos_mesh.installation import find_installation, find_refused_samples
from faultset.collector.platforms.kubernetes.client import Api, build_path
from faultset.collector.platforms.kubernetes.objects import MANAGED
from faultset.collector.platforms.kubernetes.settings import app_image
from faultset.collector.platforms.objects import is_ready
from faultset.core.errors import PlatformError

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

IMAGE = app_image("1.0.0")
SENT = 300
LEASE_S = 20
KILLED = f"""
import sys, time
from faultset.collector.platforms.impairments import Partition
from faultset.collector.platforms.kubernetes.client import Api
from faultset.collector.platforms.kubernetes.chaos_mesh import experiments
experiments.LEASE_S = {LEASE_S}
api, (control, app) = Api(), sys.argv[1:]
made = experiments.ChaosMeshImpairer(api, control, app)
made.impair(api.get(f"/api/v1/namespaces/{{app}}/pods/sender"), Partition())
print("impaired", flush=True)
time.sleep(600)
"""
FAULTSET = [sys.executable, "-c", "from faultset.core.start import faultset; faultset()"]


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Two pods that exchange datagrams, and a namespace for experiments."""

    api: Api
    app: str
    control: str

    def pod(self, name: str = SENDER) -> dict[str, Any]:
        return self.api.get(build_path("Pod", self.app, name))

    def container(self, name: str = SENDER) -> dict[str, Any]:
        return self.pod(name)["status"]["containerStatuses"][0]

    def answers(self) -> int:
        return answered(self.api, self.app, SENT)

    def start(self, name: str) -> None:
        command = ["python3", "-c", ECHO] if name == RECEIVER else ["sleep", "3600"]
        container = {"name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": command}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 1, "securityContext": {"runAsUser": 1000}}
        self.api.post(build_path("Pod", self.app), {"kind": "Pod", "metadata": {"name": name}, "spec": spec})
        until(lambda: is_ready(self.pod(name)), 60)

    def experiments(self) -> list[dict[str, Any]]:
        return [one for kind in PLURALS for one in self.api.get(path_of_experiment(kind, self.control))["items"]]


@pytest.fixture(scope="module")
def bench(api: Api) -> Iterator[Bench]:
    if problem := find_installation(api).problem:
        pytest.skip(f"needs Chaos Mesh: {problem}")
    name = f"chaos-{secrets.token_hex(3)}"
    made = Bench(api=api, app=name, control=f"{name}-control")
    for namespace in (made.app, made.control):
        api.post(build_path("Namespace", ""), {"metadata": {"name": namespace, "labels": dict(MANAGED)}})
    try:
        for pod in (RECEIVER, SENDER):
            made.start(pod)
        yield made
    finally:
        with contextlib.suppress(PlatformError):
            remove_all(api, made.control)
        for namespace in (made.app, made.control):
            api.call("DELETE", build_path("Namespace", "", namespace))


@pytest.fixture
def impairer(bench: Bench) -> Iterator[ChaosMeshImpairer]:
    made = ChaosMeshImpairer(bench.api, bench.control, bench.app)
    yield made
    made.close()
    assert bench.experiments() == []


def test_every_experiment_would_be_taken(bench: Bench) -> None:
    assert find_refused_samples(bench.api) == {}


def test_a_partition_lets_nothing_through_until_it_is_lifted(bench: Bench, impairer: ChaosMeshImpairer) -> None:
    assert bench.answers() == SENT
    impairer.impair(bench.pod(), Partition())
    assert impairer.evidence(bench.pod()) == "NetworkChaos partition is injected into sender"
    assert bench.answers() == 0
    impairer.lift(SENDER)
    assert bench.answers() == SENT
    assert impairer.evidence(bench.pod()) is None


def test_a_bandwidth_holds_answers_up(bench: Bench, impairer: ChaosMeshImpairer) -> None:
    impairer.impair(bench.pod(), Bandwidth(bytes_per_s=500))
    assert bench.answers() < 0.7 * SENT
    impairer.lift(SENDER)
    assert bench.answers() == SENT


def test_a_loss_is_lost_in_traffic_or_refused_with_the_daemon_s_words_and_leaves_the_pod_usable(
    bench: Bench, impairer: ChaosMeshImpairer
) -> None:
    refusal = ""
    try:
        impairer.impair(bench.pod(), Loss(probability=0.4))
    except PlatformError as error:
        refusal = str(error)
    if refusal:
        assert "did not inject NetworkChaos loss into sender within" in refusal
        assert "qdisc" in refusal or "unable to set tcs" in refusal
        assert bench.experiments() == []
        assert is_gone(bench.api, f"{RESOURCES}/namespaces/{bench.app}/podnetworkchaos/{SENDER}")
    else:
        assert 0.4 * SENT < bench.answers() < 0.8 * SENT
        impairer.lift(SENDER)
    assert bench.answers() == SENT
    impairer.impair(bench.pod(), Partition())
    assert bench.answers() == 0


def test_a_failed_pod_runs_another_image_until_it_is_lifted(bench: Bench, impairer: ChaosMeshImpairer) -> None:
    impairer.fail(bench.pod(RECEIVER))
    until(lambda: bench.pod(RECEIVER)["spec"]["containers"][0]["image"] != IMAGE, 30)
    impairer.lift(RECEIVER)
    until(lambda: bench.pod(RECEIVER)["spec"]["containers"][0]["image"] == IMAGE, 30)
    until(lambda: is_ready(bench.pod(RECEIVER)) and bench.answers() == SENT, 90)


def test_a_killed_container_shows_code_137_and_restarts(bench: Bench, impairer: ChaosMeshImpairer) -> None:
    before = bench.container(RECEIVER)["restartCount"]
    impairer.kill(bench.pod(RECEIVER), "main")
    until(lambda: bench.container(RECEIVER)["restartCount"] > before, 60)
    assert bench.container(RECEIVER)["lastState"]["terminated"]["exitCode"] == 137
    until(lambda: is_ready(bench.pod(RECEIVER)), 60)


def test_a_killed_pod_is_gone_and_so_is_the_experiment(bench: Bench, impairer: ChaosMeshImpairer) -> None:
    path = build_path("Pod", bench.app, RECEIVER)
    impairer.kill_pod(bench.pod(RECEIVER))
    until(lambda: is_gone(bench.api, path), 30)
    bench.start(RECEIVER)
    assert bench.answers() == SENT


def test_a_partition_ends_by_itself_after_the_collector_was_killed(bench: Bench) -> None:
    command = [sys.executable, "-c", KILLED, bench.control, bench.app]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as collector:
        assert collector.stdout is not None
        assert collector.stdout.readline() == "impaired\n"
        assert bench.answers() == 0
        os.kill(collector.pid, signal.SIGKILL)
    until(lambda: bench.answers() == SENT, LEASE_S + 30)
    assert remove_all(bench.api, bench.control) == 1


@pytest.mark.parametrize("fault", ["network-partition", "bandwidth-limit", "pod-failure", "pod-kill", "container-kill"])
def test_a_fault_is_tried_on_an_application(bench: Bench, fault: str) -> None:
    options = ["--app", "hotel", "--platform", "kubernetes", "--injector", "chaos-mesh", "--target", "geo"]
    done = subprocess.run([*FAULTSET, "try-fault", fault, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "in effect after" in done.stdout + done.stderr
