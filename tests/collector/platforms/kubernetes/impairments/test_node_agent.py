"""The collector's side of the node agents, through an API server made up for it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fake_agent import GEO, TOKEN, Agent

from faultset.collector.agent.errors import AgentError
from faultset.collector.agent.impairments import NetworkImpairment
from faultset.collector.platforms.api.impairments import Delay, Loss, Partition
from faultset.collector.platforms.kubernetes.api.client import Api
from faultset.collector.platforms.kubernetes.impairments.agent_manifests import agent_manifests
from faultset.collector.platforms.kubernetes.impairments.impairer import NodeCapabilities, common
from faultset.collector.platforms.kubernetes.impairments.node_agent import NodeAgents
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
        asked = re.fullmatch(r"/api/v1/namespaces/control/pods/([\w-]+):9465/proxy(/[\w-]+)", path)
        assert asked is not None, path
        if asked[1] != self.name or self.away:
            self.away = max(0, self.away - 1)
            raise self.refused(503, {"kind": "Status", "message": "error trying to reach service", "code": 503})
        told = json.loads(body) if body else {name: values[0] for name, values in params.items()}
        try:
            return self.agent.verbs.table[(method, asked[2])](told)
        except AgentError as error:
            return {"error": str(error)}

    refused: Any = None


@pytest.fixture
def cluster(agent: Agent, refused: Any) -> Cluster:
    made = Cluster(agent)
    made.refused = refused
    return made


@pytest.fixture
def agents(cluster: Cluster, connect: Callable[..., Api]) -> NodeAgents:
    return NodeAgents(connect(cluster, retry_timeout_s=5.0), "control", TOKEN)


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
    assert agent.held.renewed == [[GEO]]
    agent.held.impaired.clear()
    agents.renew()
    assert agent.held.impaired == {GEO: (NetworkImpairment(kind="partition"), 30.0)}


def test_an_agent_that_was_replaced_is_found_again(agents: NodeAgents, agent: Agent, cluster: Cluster) -> None:
    agents.impair(pod(), Partition())
    cluster.name, cluster.away = "agent-2", 1
    agents.renew()
    assert agent.held.renewed == [[GEO]]


def test_a_container_is_killed_by_the_id_that_its_status_tells(agents: NodeAgents, agent: Agent) -> None:
    agents.kill(pod(), "hotel-reserv-geo")
    assert agent.pods.killed == [(GEO, f"containerd://{'a' * 64}", 9)]
    with pytest.raises(PlatformError, match="container nobody of pod geo-1 does not run"):
        agents.kill(pod(), "nobody")


def test_refusals_of_the_agent_become_one_sentence(agents: NodeAgents) -> None:
    with pytest.raises(PlatformError, match="node-1 could not impair: delay cannot be made here: the kernel has no"):
        agents.impair(pod(), Delay(latency_s=0.2))
    with pytest.raises(PlatformError, match="is not one of namespace hotel-1"):
        agents.impair(pod("x"), Partition())
    unscheduled = pod()
    del unscheduled["spec"]["nodeName"]
    with pytest.raises(PlatformError, match="runs on no node yet"):
        agents.impair(unscheduled, Partition())


def test_readiness_says_what_is_missing(agents: NodeAgents, cluster: Cluster) -> None:
    assert agents.ready() == ""
    assert agents.ready(2) == "1 of 2 node agents are ready"
    cluster.ready = False
    assert agents.ready() == "0 of 1 node agents are ready (node-1: ErrImagePull no image)"


def test_load_and_clock_come_from_the_nodes(agents: NodeAgents) -> None:
    load = agents.host_load()
    assert load.nodes == 1
    assert (load.cores or 0) >= 1
    assert abs(agents.clock_offset_s()) < 5


def test_what_all_nodes_can_do_is_what_the_weakest_can() -> None:
    able = {"loss": True, "partition": True, "delay": True, "kill": True, "reasons": {}}
    weak = {**able, "delay": False, "reasons": {"delay": "the kernel has no netem"}}
    assert common([able, able]) == NodeCapabilities(loss=True, partition=True, delay=True, kill=True)
    found = common([able, weak])
    assert (found.loss, found.delay, found.reason) == (True, False, "delay: the kernel has no netem")
    assert common([]).reasons["loss"] == "no node agent runs"


def test_agents_run_everywhere_and_know_their_namespace_and_token() -> None:
    secret, daemons = agent_manifests(namespace="control", image="faultset/app:1.0.0", token=TOKEN, app_namespace="h-1")
    spec = daemons["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert secret["stringData"] == {"token": TOKEN}
    assert TOKEN not in json.dumps(daemons)
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["hostPID"] is True
    assert "hostNetwork" not in spec
    assert container["securityContext"]["privileged"] is True
    assert {"name": "FAULTSET_AGENT_NAMESPACE", "value": "h-1"} in container["env"]
    assert all(one["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "faultset" for one in (secret, daemons))
