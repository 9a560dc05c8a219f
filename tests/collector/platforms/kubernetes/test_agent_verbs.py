"""The agent's verbs over HTTP, and the collector's side of them through an API server made up for it."""

from __future__ import annotations

import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import pytest

from faultset.collector.agent.active_impairments import Holding
from faultset.collector.agent.capabilities import Abilities
from faultset.collector.agent.errors import Refusal
from faultset.collector.agent.impairments import Disturbance
from faultset.collector.agent.pods import Pods
from faultset.collector.agent.scheduling_delay import Lateness
from faultset.collector.agent.server import Verbs, make_server
from faultset.collector.platforms.api.impairments import Delay, Loss, Partition
from faultset.collector.platforms.kubernetes.api.client import Api
from faultset.collector.platforms.kubernetes.impairments.impairer import NodeCapabilities, common
from faultset.collector.platforms.kubernetes.impairments.node_agent import NodeAgents, agent_manifests
from faultset.core.errors import PlatformError

TOKEN = "b8f1c0"
GEO = "a570e514-5f17-4e87-a049-2fa201289d9e"


class Held:
    """Remembers what is asked of it, in place of a node's network."""

    def __init__(self) -> None:
        self.disturbed: dict[str, tuple[Disturbance, float]] = {}
        self.renewed: list[list[str]] = []

    def impair(self, uid: str, disturbance: Disturbance, lease_s: float) -> None:
        if uid != GEO:
            raise Refusal(f"pod {uid} is not one of namespace hotel-1 on this node")
        self.disturbed[uid] = (disturbance, lease_s)

    def renew(self, uids: Iterable[str]) -> list[str]:
        self.renewed.append(list(uids))
        return [uid for uid in self.renewed[-1] if uid not in self.disturbed]

    def lift(self, uid: str) -> None:
        self.disturbed.pop(uid, None)

    def packets(self, uid: str) -> int:
        return 42 if uid in self.disturbed else 0

    def pods(self) -> list[str]:
        return list(self.disturbed)


class Killing(Pods):
    """Remembers which containers it was to kill."""

    def __init__(self) -> None:
        super().__init__("hotel-1")
        self.killed: list[tuple[str, str, int]] = []

    def names(self) -> dict[str, str]:
        return {GEO: "geo-1"}

    def kill(self, uid: str, container_id: str, number: int = 9) -> int:
        self.killed.append((uid, container_id, number))
        return 4711


class Agent:
    """An agent with made-up hands."""

    def __init__(self) -> None:
        self.held, self.pods, self.lateness = Held(), Killing(), Lateness()
        abilities = Abilities(variant="", reasons={"delay": "the kernel has no netem"})
        self.verbs = Verbs(self.pods, cast(Holding, self.held), abilities, self.lateness)


@pytest.fixture
def agent() -> Iterator[Agent]:
    made = Agent()
    yield made
    made.lateness.close()


@pytest.fixture
def ask(agent: Agent) -> Iterator[Callable[..., dict[str, Any]]]:
    """Ask the agent over HTTP."""
    server = make_server(agent.verbs, TOKEN, port=0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()

    def send(verb: str, told: Any = None, *, token: str | None = TOKEN) -> dict[str, Any]:
        data = None if told is None else json.dumps(told).encode()
        headers = {} if token is None else {"X-Faultset-Token": token}
        request = urllib.request.Request(f"http://127.0.0.1:{server.server_port}{verb}", data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return {"status": error.code, **json.load(error)}

    yield send
    server.shutdown()
    server.server_close()
    thread.join()


def test_impair_counters_and_lift_follow_each_other(ask: Callable[..., dict[str, Any]], agent: Agent) -> None:
    told = {"pod_uid": GEO, "impairment": {"kind": "loss", "probability": 0.3}, "lease_s": 20}
    assert ask("/impair", told) == {}
    assert agent.held.disturbed == {GEO: (Disturbance(kind="loss", probability=0.3), 20)}
    assert ask(f"/counters?pod_uid={GEO}") == {"packets": 42}
    assert ask("/renew", {"pod_uids": [GEO, "x"]}) == {"unknown": ["x"]}
    assert ask("/lift", {"pod_uid": GEO}) == {}
    assert ask(f"/counters?pod_uid={GEO}") == {"packets": 0}


def test_a_pod_can_be_lifted_by_name(ask: Callable[..., dict[str, Any]], agent: Agent) -> None:
    agent.held.disturbed[GEO] = (Disturbance(kind="partition"), 30)
    ask("/lift", {"pod": "rate-1"})
    assert agent.held.disturbed
    ask("/lift", {"pod": "geo-1"})
    assert not agent.held.disturbed


@pytest.mark.parametrize("token", [None, "", "secreT", "secret "])
def test_nothing_is_done_without_the_token(token: str | None, ask: Callable[..., dict[str, Any]], agent: Agent) -> None:
    answer = ask("/kill", {"pod_uid": GEO, "container_id": "a" * 64}, token=token)
    assert answer["status"] == 403
    assert agent.pods.killed == []


def test_what_the_kernel_cannot_do_is_refused_before_it_is_tried(
    ask: Callable[..., dict[str, Any]], agent: Agent
) -> None:
    told = {"pod_uid": GEO, "impairment": {"kind": "delay", "latency_s": 0.2}}
    assert ask("/impair", told) == {"error": "delay cannot be made here: the kernel has no netem"}
    assert agent.held.disturbed == {}
    assert ask("/capabilities")["delay"] is False


@pytest.mark.parametrize(
    ("verb", "told", "said"),
    [
        ("/impair", {"impairment": {"kind": "partition"}}, "pod_uid is needed"),
        ("/impair", {"pod_uid": GEO, "impairment": {"kind": "rm"}}, "an impairment has a kind"),
        ("/impair", {"pod_uid": "x", "impairment": {"kind": "partition"}}, "is not one of namespace"),
        ("/kill", {"pod_uid": GEO, "container_id": "a" * 64, "signal": 19}, "signal 9 or 15"),
        ("/renew", {"pod_uids": GEO}, "a list of texts"),
        ("/remove-volumes", {"paths": ["/etc"]}, "volumes lie below"),
        ("/lift", [GEO], "a request is an object"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(
    verb: str, told: Any, said: str, ask: Callable[..., dict[str, Any]]
) -> None:
    assert said in ask(verb, told)["error"]


def test_unknown_verbs_are_not_found(ask: Callable[..., dict[str, Any]]) -> None:
    assert ask("/reboot", {})["status"] == 404
    assert ask("/impair")["status"] == 404, "a GET changes nothing"


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
        except Refusal as refusal:
            return {"error": str(refusal)}

    refused: Any = None


@pytest.fixture
def cluster(agent: Agent, refused: Any) -> Cluster:
    made = Cluster(agent)
    made.refused = refused
    return made


@pytest.fixture
def agents(cluster: Cluster, connect: Callable[..., Api]) -> NodeAgents:
    return NodeAgents(connect(cluster, patience_s=5.0), "control", TOKEN)


def pod(uid: str = GEO) -> dict[str, Any]:
    status = {"containerStatuses": [{"name": "hotel-reserv-geo", "containerID": f"containerd://{'a' * 64}"}]}
    return {"metadata": {"name": "geo-1", "uid": uid}, "spec": {"nodeName": "node-1"}, "status": status}


def test_the_collector_impairs_counts_and_lifts_through_the_api_server(agents: NodeAgents, agent: Agent) -> None:
    agents.impair(pod(), Loss(probability=0.25))
    assert agent.held.disturbed == {GEO: (Disturbance(kind="loss", probability=0.25), 30.0)}
    assert agents.impaired_packets(pod()) == 42
    agents.lift("geo-1")
    agents.lift("geo-1")
    assert agent.held.disturbed == {}


def test_renewal_sets_again_what_an_agent_has_lost(agents: NodeAgents, agent: Agent) -> None:
    agents.impair(pod(), Partition())
    agents.renew()
    assert agent.held.renewed == [[GEO]]
    agent.held.disturbed.clear()
    agents.renew()
    assert agent.held.disturbed == {GEO: (Disturbance(kind="partition"), 30.0)}


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
