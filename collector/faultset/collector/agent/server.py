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
from faultset.collector.agent.messages import (
    Acknowledgement,
    AgentCapabilities,
    AgentMessage,
    ImpairPod,
    KillContainer,
    KilledProcess,
    LiftImpairment,
    MessageT,
    NodeStatistics,
    PacketCount,
    PrepareVolumes,
    ReadCapabilities,
    ReadNode,
    ReadPackets,
    RemoveVolumes,
    RenewedLeases,
    RenewLeases,
    read_message,
)
from faultset.collector.agent.networks import Network
from faultset.collector.agent.pods import Pods
from faultset.collector.agent.protocol import (
    AGENT_PORT,
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
        self.table: Mapping[tuple[str, str], Callable[[object], dict[str, Any]]] = dict(
            [
                _verb(ReadCapabilities, self._capabilities),
                _verb(ReadPackets, self._counters),
                _verb(ReadNode, self._stats),
                _verb(ImpairPod, self._impair),
                _verb(RenewLeases, self._renew),
                _verb(LiftImpairment, self._lift),
                _verb(KillContainer, self._kill),
                _verb(PrepareVolumes, self._prepare),
                _verb(RemoveVolumes, self._remove),
            ]
        )

    def _capabilities(self, request: ReadCapabilities) -> AgentCapabilities:
        can = {act: self._abilities.can(act) for act in (*KINDS, "kill")}
        return AgentCapabilities(**can, reasons=self._abilities.reasons, namespace=self._pods.namespace)

    def _counters(self, request: ReadPackets) -> PacketCount:
        return PacketCount(packets=self._active.packets(request.pod_uid))

    def _stats(self, request: ReadNode) -> NodeStatistics:
        return NodeStatistics(
            load_average=os.getloadavg()[0],
            cores=os.cpu_count() or 1,
            worst_delay_s=self._delay.worst_s(reset=request.reset),
            time_ns=time.time_ns(),
            impaired=tuple(self._active.pods()),
        )

    def _impair(self, request: ImpairPod) -> Acknowledgement:
        impairment = read_impairment(request.impairment)
        if not self._abilities.can(impairment.kind):
            raise AgentError(f"{impairment.kind} cannot be made here: {self._abilities.reasons[impairment.kind]}")
        self._active.impair(request.pod_uid, impairment, request.lease_s)
        return Acknowledgement()

    def _renew(self, request: RenewLeases) -> RenewedLeases:
        return RenewedLeases(unknown=tuple(self._active.renew(request.pod_uids)))

    def _lift(self, request: LiftImpairment) -> Acknowledgement:
        if request.pod_uid is not None:
            self._active.lift(request.pod_uid)
            return Acknowledgement()
        if request.pod is None:
            raise AgentError("pod is needed, as a text; found None")
        names = self._pods.names()
        for uid in self._active.pods():
            if names.get(uid) == request.pod:
                self._active.lift(uid)
        return Acknowledgement()

    def _kill(self, request: KillContainer) -> KilledProcess:
        if request.signal not in (signal.SIGKILL, signal.SIGTERM):
            raise AgentError(f"containers are sent signal 9 or 15; found {request.signal!r}")
        return KilledProcess(pid=self._pods.kill(request.pod_uid, request.container_id, request.signal))

    def _prepare(self, request: PrepareVolumes) -> Acknowledgement:
        volumes.prepare(request.paths)
        return Acknowledgement()

    def _remove(self, request: RemoveVolumes) -> Acknowledgement:
        volumes.remove(request.paths)
        return Acknowledgement()


def _verb(
    kind: type[MessageT], handler: Callable[[MessageT], AgentMessage]
) -> tuple[tuple[str, str], Callable[[object], dict[str, Any]]]:
    """Return a method and path, and what answers them."""
    return (kind.method, kind.path), lambda record: handler(read_message(kind, record)).as_record()


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
