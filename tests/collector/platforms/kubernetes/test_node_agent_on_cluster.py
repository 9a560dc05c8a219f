"""The node agent on a real cluster: traffic between two pods, leases, restarts and deaths."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from datagrams import ECHO, RECEIVER, answered, is_gone, until

from faultset.collector.platforms.impairments import Delay, Loss, Partition
from faultset.collector.platforms.kubernetes.client import APPLY_PATCH, Api, build_path, run_in_pod
from faultset.collector.platforms.kubernetes.impairer import NodeAgents, build_agent_manifest
from faultset.collector.platforms.kubernetes.objects import PRIVILEGED
from faultset.collector.platforms.kubernetes.settings import app_image
from faultset.collector.platforms.objects import is_ready
from faultset.core.errors import PlatformError

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

IMAGE = app_image("1.0.0")
SENT = 300
RENEWING = """
import sys, time
from faultset.collector.platforms.kubernetes.client import Api
from faultset.collector.platforms.kubernetes.impairer import NodeAgents
from faultset.collector.platforms.impairments import Partition
api, (control, app) = Api(), sys.argv[1:]
agents = NodeAgents(api, control)
agents.start()
agents.impair(api.get(f"/api/v1/namespaces/{app}/pods/sender"), Partition())
print("impaired", flush=True)
time.sleep(600)
"""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Two pods that exchange datagrams, and the agents of their nodes."""

    api: Api
    app: str
    control: str

    def agents(self) -> NodeAgents:
        return NodeAgents(self.api, self.control)

    def pod(self, name: str = "sender") -> dict[str, Any]:
        return self.api.get(build_path("Pod", self.app, name))

    def answers(self) -> int:
        return answered(self.api, self.app, SENT)

    def start(self, name: str) -> None:
        command = ["python3", "-c", ECHO] if name == RECEIVER else ["sleep", "3600"]
        container = {"name": "main", "image": IMAGE, "command": command}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 1, "securityContext": {"runAsUser": 1000}}
        self.api.post(build_path("Pod", self.app), {"kind": "Pod", "metadata": {"name": name}, "spec": spec})
        until(lambda: is_ready(self.pod(name)), 60)

    def rules(self) -> str:
        """Return the rules of iptables in the sender's network, seen from the agent."""
        node = "import sys; from faultset.collector.agent.pods import Pods; "
        code = (
            f"{node}from faultset.collector.agent.networks import Network; "
            "print(Network(Pods(sys.argv[1]).open_network(sys.argv[2]))._run('iptables', '-S'))"
        )
        uid = self.pod()["metadata"]["uid"]
        return self.in_agent("python3", "-c", code, self.app, uid)

    def in_agent(self, *argv: str) -> str:
        pods = self.api.get(build_path("Pod", self.control), {"labelSelector": "app.kubernetes.io/name=faultset-agent"})
        return run_in_pod(self.api, self.control, pods["items"][0]["metadata"]["name"], "agent", argv)

    def kill_agent(self) -> None:
        code = (
            "import os\n"
            "own = open('/proc/self/cgroup').read()\n"
            "for pid in filter(str.isdigit, os.listdir('/proc')):\n"
            "    try:\n"
            "        if int(pid) != os.getpid() and open(f'/proc/{pid}/cgroup').read() == own: os.kill(int(pid), 9)\n"
            "    except OSError: pass\n"
        )
        with contextlib.suppress(PlatformError):
            self.in_agent("python3", "-c", code)


@pytest.fixture(scope="module")
def bench(api: Api) -> Iterator[Bench]:
    name = f"k2-{secrets.token_hex(3)}"
    made = Bench(api=api, app=name, control=f"{name}-control")
    for namespace, labels in ((made.app, {}), (made.control, PRIVILEGED)):
        api.post(build_path("Namespace", ""), {"metadata": {"name": namespace, "labels": labels}})
    try:
        wanted = build_agent_manifest(namespace=made.control, image=IMAGE, app_namespace=made.app)
        for one in [wanted]:
            path = build_path(one["kind"], made.control, one["metadata"]["name"])
            query = {"fieldManager": "test", "force": True}
            api.call("PATCH", path, query=query, body=one, content_type=APPLY_PATCH)
        for pod in ("receiver", "sender"):
            made.start(pod)
        until(lambda: not made.agents().describe_missing(), 60)
        yield made
    finally:
        for namespace in (made.app, made.control):
            api.call("DELETE", build_path("Namespace", "", namespace))


@pytest.fixture
def agents(bench: Bench) -> Iterator[NodeAgents]:
    made = bench.agents()
    made.start()
    yield made
    made.close()
    made.lift("sender")


def test_lost_packets_are_lost_in_traffic_and_counted(bench: Bench, agents: NodeAgents) -> None:
    assert bench.answers() == SENT
    agents.impair(bench.pod(), Loss(probability=0.4))
    answers = bench.answers()
    assert 0.45 * SENT < answers < 0.75 * SENT
    assert agents.impaired_packets(bench.pod()) >= SENT - answers
    agents.lift("sender")
    assert bench.answers() == SENT
    assert agents.impaired_packets(bench.pod()) == 0
    assert "FAULTSET" not in bench.rules()


def test_a_partition_lets_nothing_in_or_out_and_can_follow_a_loss(bench: Bench, agents: NodeAgents) -> None:
    agents.impair(bench.pod(), Loss(probability=0.1))
    agents.impair(bench.pod(), Partition())
    assert bench.answers() == 0
    assert agents.impaired_packets(bench.pod()) >= SENT
    assert bench.rules().count("-j FAULTSET-OUT") == 1
    agents.impair(bench.pod("receiver"), Partition())
    agents.lift(bench.pod()["metadata"]["uid"])
    assert bench.answers() == 0
    agents.lift("receiver")
    assert bench.answers() == SENT


def test_delay_works_or_is_refused_with_the_reason(bench: Bench, agents: NodeAgents) -> None:
    missing = agents.missing_capabilities()
    assert "loss" not in missing
    assert "partition" not in missing
    assert "kill" not in missing
    if "delay" not in missing:
        agents.impair(bench.pod(), Delay(latency_s=0.2))
        assert agents.impaired_packets(bench.pod()) >= 0
    else:
        assert "netem" in missing["delay"]
        with pytest.raises(PlatformError, match="delay is not supported here: the kernel does not support netem"):
            agents.impair(bench.pod(), Delay(latency_s=0.2))


def test_rules_end_by_themselves_after_the_collector_was_killed(bench: Bench) -> None:
    command = [sys.executable, "-c", RENEWING, bench.control, bench.app]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as collector:
        assert collector.stdout is not None
        assert collector.stdout.readline() == "impaired\n"
        time.sleep(35)
        assert bench.answers() == 0, "renewed leases go on"
        os.kill(collector.pid, signal.SIGKILL)
    assert until(lambda: bench.answers() == SENT, 45) > 15
    assert "FAULTSET" not in bench.rules()


def test_an_agent_that_comes_back_goes_on_with_what_is_renewed(bench: Bench, agents: NodeAgents) -> None:
    agents.impair(bench.pod(), Partition())
    bench.kill_agent()
    until(lambda: not agents.describe_missing(), 60)
    time.sleep(35)
    assert bench.answers() == 0
    agents.lift("sender")
    assert bench.answers() == SENT


def test_an_agent_that_comes_back_ends_what_nobody_renews(bench: Bench) -> None:
    forgetful = bench.agents()
    forgetful.impair(bench.pod(), Partition())
    bench.kill_agent()
    until(lambda: not bench.agents().describe_missing(), 60)
    assert bench.answers() == 0
    until(lambda: bench.answers() == SENT, 90)
    assert "FAULTSET" not in bench.rules()


def test_an_agent_that_is_told_to_end_lifts_everything(bench: Bench) -> None:
    bench.agents().impair(bench.pod(), Partition())
    path = build_path("Pod", bench.control)
    name = bench.api.get(path)["items"][0]["metadata"]["name"]
    bench.api.call("DELETE", f"{path}/{name}")
    until(lambda: bench.answers() == SENT, 20)
    until(lambda: is_gone(bench.api, f"{path}/{name}") and not bench.agents().describe_missing(), 60)


def test_a_killed_container_shows_code_137_and_restarts(bench: Bench, agents: NodeAgents) -> None:
    agents.kill(bench.pod("receiver"), "main")

    def restarted() -> bool:
        (status,) = bench.pod("receiver")["status"]["containerStatuses"]
        return status["restartCount"] == 1 and "running" in status["state"]

    until(restarted, 60)
    (status,) = bench.pod("receiver")["status"]["containerStatuses"]
    assert status["lastState"]["terminated"]["exitCode"] == 137


def test_pods_of_other_namespaces_are_refused(bench: Bench, agents: NodeAgents) -> None:
    stranger = bench.api.get(build_path("Pod", "kube-system"))["items"][0]
    with pytest.raises(PlatformError, match="does not belong to namespace"):
        agents.impair(stranger, Partition())
    with pytest.raises(PlatformError, match="does not belong to namespace"):
        agents.kill(stranger, stranger["spec"]["containers"][0]["name"])
    mixed = bench.pod()
    mixed["status"]["containerStatuses"][0]["containerID"] = stranger["status"]["containerStatuses"][0]["containerID"]
    with pytest.raises(PlatformError, match="has no process"):
        agents.kill(mixed, "main")


def test_volumes_are_removed_and_nothing_else(bench: Bench, agents: NodeAgents) -> None:
    folder = f"/var/lib/faultset/{bench.app}"
    bench.in_agent("mkdir", "-p", f"{folder}/geo-pv")
    with pytest.raises(PlatformError, match="volumes must be below"):
        agents.remove_volumes(["/var/lib/faultset/../kubelet"])
    agents.remove_volumes([folder])
    agents.remove_volumes([folder])
    assert bench.app not in bench.in_agent("ls", "/var/lib/faultset")


def test_the_host_load_says_how_busy_nodes_are_and_what_time_they_have(bench: Bench, agents: NodeAgents) -> None:
    load = agents.measure_host_load()
    assert load.nodes == 1
    assert (load.worst_delay_ms or 0) > 0
    assert abs(agents.clock_offset_s()) < 0.1
    assert json.dumps(load.as_record())


def test_a_pod_that_is_deleted_while_impaired_leaves_nothing_to_do(bench: Bench, agents: NodeAgents) -> None:
    agents.impair(bench.pod(), Partition())
    path = build_path("Pod", bench.app, "sender")
    bench.api.call("DELETE", path, query={"gracePeriodSeconds": 0})
    until(lambda: is_gone(bench.api, path), 30)
    agents.renew()
    agents.lift("sender")
    bench.start("sender")
    assert bench.answers() == SENT
