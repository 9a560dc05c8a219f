"""The collector's side of the node agents, through an API server made up for it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from fake_agent import GEO, Agent

from faultset.collector.agent.networks import NetworkImpairment
from faultset.collector.platforms.impairments import Delay, Loss, Partition
from faultset.collector.platforms.kubernetes.client import Api
from faultset.collector.platforms.kubernetes.impairer import PROGRAM, NodeAgents, build_agent_manifest, merge_reasons
from faultset.core.errors import PlatformError


@pytest.fixture
def agent() -> Iterator[Agent]:
    made = Agent()
    yield made
    made.delay.close()


class Cluster:
    """An API server in front of agents."""

    def __init__(self, agent: Agent) -> None:
        self.agent, self.name = agent, "agent-1"
        self.ready = True
        self.away = 0

    def __call__(self, method: str, path: str, params: dict[str, list[str]], body: bytes) -> Any:
        if path.endswith("/daemonsets/faultset-agent"):
            return {"status": {"desiredNumberScheduled": 1, "numberReady": int(self.ready)}}
        if path.endswith("/pods"):
            condition = {"type": "Ready", "status": str(self.ready)}
            waiting = {"state": {"waiting": {"reason": "ErrImagePull", "message": "no image"}}}
            status = {"conditions": [condition], "containerStatuses": [] if self.ready else [waiting]}
            return {"items": [{"metadata": {"name": self.name}, "spec": {"nodeName": "node-1"}, "status": status}]}
        raise AssertionError(path)

    def run(self, api: Api, namespace: str, pod: str, container: str, argv: Sequence[str]) -> Iterator[str]:
        """Run the program in the agent's container."""
        assert (namespace, container, argv[:3]) == ("control", "agent", list(PROGRAM))
        if pod != self.name or self.away:
            self.away = max(0, self.away - 1)
            raise PlatformError("error trying to reach service")
        if argv[3] == "clock":
            yield f"{time.time_ns() - 10**9}\n"
            yield f"{time.time_ns()}\n"
        else:
            yield json.dumps(self.agent.verbs.answer({"verb": argv[3], **json.loads(argv[4])}))


@pytest.fixture
def cluster(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(agent)
    package = "faultset.collector.platforms.kubernetes"
    monkeypatch.setattr(f"{package}.impairer.stream_from_pod", made.run)
    monkeypatch.setattr(f"{package}.impairer.run_in_pod", lambda *args: "".join(made.run(*args)))
    return made


@pytest.fixture
def agents(cluster: Cluster, connect: Callable[..., Api]) -> NodeAgents:
    return NodeAgents(connect(cluster, retry_timeout_s=5.0), "control")


def pod(uid: str = GEO) -> dict[str, Any]:
    status = {"containerStatuses": [{"name": "hotel-reserv-geo", "containerID": f"containerd://{'a' * 64}"}]}
    return {"metadata": {"name": "geo-1", "uid": uid}, "spec": {"nodeName": "node-1"}, "status": status}


def test_the_collector_impairs_counts_and_lifts_through_the_api_server(agents: NodeAgents, agent: Agent) -> None:
    agents.impair(pod(), Loss(probability=0.25))
    assert agent.held.impaired == {GEO: (NetworkImpairment(kind="loss", probability=0.25), 30.0)}
    assert agents.impaired_packets(pod()) == 42
    agents.lift("geo-1")
    agents.lift("geo-1")
    assert agent.held.impaired == {}


def test_renewal_sets_again_what_an_agent_has_lost(agents: NodeAgents, agent: Agent) -> None:
    agents.impair(pod(), Partition())
    agents.renew()
    assert agent.held.renewed == [GEO]
    agent.held.impaired.clear()
    agents.renew()
    assert agent.held.impaired == {GEO: (NetworkImpairment(kind="partition"), 30.0)}


def test_an_agent_that_was_replaced_is_found_again(agents: NodeAgents, agent: Agent, cluster: Cluster) -> None:
    agents.impair(pod(), Partition())
    cluster.name, cluster.away = "agent-2", 1
    agents.renew()
    assert agent.held.renewed == [GEO]


def test_a_container_is_killed_by_the_id_that_its_status_tells(agents: NodeAgents, agent: Agent) -> None:
    agents.kill(pod(), "hotel-reserv-geo")
    assert agent.pods.killed == [(GEO, f"containerd://{'a' * 64}")]
    with pytest.raises(PlatformError, match="cannot kill container nobody of pod geo-1"):
        agents.kill(pod(), "nobody")


def test_refusals_of_the_agent_become_one_sentence(agents: NodeAgents) -> None:
    with pytest.raises(
        PlatformError, match="node-1 could not impair: delay is not supported here: the kernel does not"
    ):
        agents.impair(pod(), Delay(latency_s=0.2))
    with pytest.raises(PlatformError, match="does not belong to namespace hotel-1"):
        agents.impair(pod("x"), Partition())
    unscheduled = pod()
    del unscheduled["spec"]["nodeName"]
    with pytest.raises(PlatformError, match="has no node yet"):
        agents.impair(unscheduled, Partition())


def test_readiness_says_what_is_missing(agents: NodeAgents, cluster: Cluster) -> None:
    assert agents.describe_missing() == ""
    cluster.ready = False
    assert (
        agents.describe_missing()
        == "0 of 1 node agents are ready (pod agent-1 on node-1 is Pending: ErrImagePull no image)"
    )


def test_load_and_clock_come_from_the_nodes(agents: NodeAgents) -> None:
    load = agents.measure_host_load()
    assert load.nodes == 1
    assert (load.cores or 0) >= 1
    assert abs(agents.clock_offset_s()) < 0.5, "the quickest reading counts"


def test_what_all_nodes_can_do_is_what_the_weakest_can() -> None:
    able, weak = {"reasons": {}}, {"reasons": {"delay": "the kernel does not support netem"}}
    assert merge_reasons([able, able]) == {}
    assert merge_reasons([able, weak]) == weak["reasons"]
    assert merge_reasons([])["loss"] == "no node agent is running"


def test_agents_run_everywhere_and_know_their_namespace() -> None:
    daemons = build_agent_manifest(namespace="control", image="faultset/app:1.0.0", app_namespace="h-1")
    spec = daemons["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["hostPID"] is True
    assert "hostNetwork" not in spec
    assert container["securityContext"]["privileged"] is True
    assert container["command"] == [*PROGRAM, "watch", "h-1"]
    assert daemons["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "faultset"
