"""The verbs of the node agent over HTTP."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fake_agent import GEO, TOKEN, Agent

from faultset.collector.agent.impairments import NetworkImpairment
from faultset.collector.agent.server import make_server


@pytest.fixture
def agent() -> Iterator[Agent]:
    made = Agent()
    yield made
    made.delay.close()


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
    assert agent.held.impaired == {GEO: (NetworkImpairment(kind="loss", probability=0.3), 20)}
    assert ask(f"/counters?pod_uid={GEO}") == {"packets": 42}
    assert ask("/renew", {"pod_uids": [GEO, "x"]}) == {"unknown": ["x"]}
    assert ask("/lift", {"pod_uid": GEO}) == {}
    assert ask(f"/counters?pod_uid={GEO}") == {"packets": 0}


def test_a_pod_can_be_lifted_by_name(ask: Callable[..., dict[str, Any]], agent: Agent) -> None:
    agent.held.impaired[GEO] = (NetworkImpairment(kind="partition"), 30)
    ask("/lift", {"pod": "rate-1"})
    assert agent.held.impaired
    ask("/lift", {"pod": "geo-1"})
    assert not agent.held.impaired


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
    assert agent.held.impaired == {}
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
        ("/lift", [GEO], "LiftImpairment is a JSON object"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(
    verb: str, told: Any, said: str, ask: Callable[..., dict[str, Any]]
) -> None:
    assert said in ask(verb, told)["error"]


def test_unknown_verbs_are_not_found(ask: Callable[..., dict[str, Any]]) -> None:
    assert ask("/reboot", {})["status"] == 404
    assert ask("/impair")["status"] == 404, "a GET changes nothing"
