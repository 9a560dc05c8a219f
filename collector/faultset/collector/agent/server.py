"""The agent as a process: verbs over HTTP, the watch over leases, and the end.

Answers are JSON objects; what is refused is `{"error": SENTENCE}`.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from faultset.collector.agent import volumes
from faultset.collector.agent.active_impairments import TICK_S, ActiveImpairments
from faultset.collector.agent.capabilities import Abilities, find_abilities
from faultset.collector.agent.errors import AgentError
from faultset.collector.agent.impairments import KINDS, read_impairment
from faultset.collector.agent.leases import Leases
from faultset.collector.agent.networks import Network
from faultset.collector.agent.pods import Pods
from faultset.collector.agent.protocol import (
    AGENT_PORT,
    LEASE_S,
    NAMESPACE_VARIABLE,
    TOKEN_HEADER,
    TOKEN_VARIABLE,
)
from faultset.collector.agent.scheduling_delay import SchedulingDelay

_MOST_BYTES = 1 << 20

logger = logging.getLogger(__name__)


class Verbs:
    """What can be asked of the agent, by method and path."""

    def __init__(self, pods: Pods, active: ActiveImpairments, abilities: Abilities, delay: SchedulingDelay):
        self._pods, self._active, self._abilities, self._delay = pods, active, abilities, delay
        self.table: Mapping[tuple[str, str], Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            ("GET", "/capabilities"): self._capabilities,
            ("GET", "/counters"): self._counters,
            ("GET", "/stats"): self._stats,
            ("POST", "/impair"): self._impair,
            ("POST", "/renew"): self._renew,
            ("POST", "/lift"): self._lift,
            ("POST", "/kill"): self._kill,
            ("POST", "/prepare-volumes"): self._prepare,
            ("POST", "/remove-volumes"): self._remove,
        }

    def _capabilities(self, request: Mapping[str, Any]) -> dict[str, Any]:
        can = {act: self._abilities.can(act) for act in (*KINDS, "kill")}
        return {**can, "reasons": self._abilities.reasons, "namespace": self._pods.namespace}

    def _counters(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"packets": self._active.packets(_text(request, "pod_uid"))}

    def _stats(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "load_average": os.getloadavg()[0],
            "cores": os.cpu_count(),
            "worst_delay_s": self._delay.worst_s(reset=request.get("reset") == "true"),
            "time_ns": time.time_ns(),
            "impaired": self._active.pods(),
        }

    def _impair(self, request: Mapping[str, Any]) -> dict[str, Any]:
        uid, impairment = _text(request, "pod_uid"), read_impairment(request.get("impairment"))
        if not self._abilities.can(impairment.kind):
            raise AgentError(f"{impairment.kind} cannot be made here: {self._abilities.reasons[impairment.kind]}")
        self._active.impair(uid, impairment, request.get("lease_s", LEASE_S))
        return {}

    def _renew(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"unknown": self._active.renew(_texts(request, "pod_uids"))}

    def _lift(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Lift by uid, or by the name of a pod whose uid the collector no longer knows."""
        if "pod_uid" in request:
            self._active.lift(_text(request, "pod_uid"))
        else:
            name, names = _text(request, "pod"), self._pods.names()
            for uid in self._active.pods():
                if names.get(uid) == name:
                    self._active.lift(uid)
        return {}

    def _kill(self, request: Mapping[str, Any]) -> dict[str, Any]:
        number = request.get("signal", int(signal.SIGKILL))
        if number not in (signal.SIGKILL, signal.SIGTERM):
            raise AgentError(f"containers are sent signal 9 or 15; found {number!r}")
        return {"pid": self._pods.kill(_text(request, "pod_uid"), _text(request, "container_id"), number)}

    def _prepare(self, request: Mapping[str, Any]) -> dict[str, Any]:
        volumes.prepare(_texts(request, "paths"))
        return {}

    def _remove(self, request: Mapping[str, Any]) -> dict[str, Any]:
        volumes.remove(_texts(request, "paths"))
        return {}


def _text(request: Mapping[str, Any], name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str) or not value:
        raise AgentError(f"{name} is needed, as a text; found {value!r}")
    return value


def _texts(request: Mapping[str, Any], name: str) -> list[str]:
    value = request.get(name)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise AgentError(f"{name} is needed, as a list of texts; found {value!r}")
    return value


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def make_server(verbs: Verbs, token: str, port: int = AGENT_PORT) -> ThreadingHTTPServer:
    """Return a server that answers those who know the token."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60.0
        wbufsize = -1

        def do_GET(self) -> None:
            self._serve("GET")

        def do_POST(self) -> None:
            self._serve("POST")

        def _serve(self, method: str) -> None:
            url = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(min(length, _MOST_BYTES))
            if not hmac.compare_digest((self.headers.get(TOKEN_HEADER) or "").encode(), token.encode()):
                return self._answer(403, {"error": "the agent was asked without its token"})
            verb = verbs.table.get((method, url.path))
            if verb is None:
                return self._answer(404, {"error": f"the agent has no verb {method} {url.path}"})
            try:
                request = (
                    json.loads(body) if body else {name: values[-1] for name, values in parse_qs(url.query).items()}
                )
                if not isinstance(request, dict):
                    raise AgentError("a request is an object")
                return self._answer(200, verb(request))
            except (AgentError, ValueError, OSError) as error:
                return self._answer(200, {"error": str(error)})

        def _answer(self, status: int, answer: Mapping[str, Any]) -> None:
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            logger.debug(format, *args)

    return _Server(("", port), Handler)


def main() -> int:
    """Run until SIGTERM, then lift everything; return the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    token, namespace = os.environ.get(TOKEN_VARIABLE, ""), os.environ.get(NAMESPACE_VARIABLE, "")
    if not token or not namespace:
        print(f"Error: the agent needs {TOKEN_VARIABLE} and {NAMESPACE_VARIABLE} in its environment", file=sys.stderr)
        return 2
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    pods = Pods(namespace)
    abilities = find_abilities(pods.unavailable_reason())
    active = ActiveImpairments(pods, Leases(), lambda descriptor: Network(descriptor, variant=abilities.variant))
    left = active.take_over()
    server = make_server(Verbs(pods, active, abilities, SchedulingDelay()), token)
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    logger.info("ready; cannot %s; taken over: %s", abilities.reasons or "nothing", left or "nothing")
    while not stop.wait(TICK_S):
        active.lift_expired()
    server.shutdown()
    active.lift_all()
    return 0
