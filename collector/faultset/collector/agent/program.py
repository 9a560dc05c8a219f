"""The one program that impairs pods, on a node or inside of a pod; everything is asked of it by exec.

`watch` is what the container runs: it holds the impairments and lifts what nobody renews. Every other verb is run
beside it, asks it through a socket in the container and prints its answer, a JSON object; what is refused is
`{"error": SENTENCE}`. No request comes over the network of the pod, which may be cut.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from faultset.collector.agent import volumes
from faultset.collector.agent.active_impairments import TICK_S, ActiveImpairments
from faultset.collector.agent.capabilities import Abilities, find_abilities
from faultset.collector.agent.errors import AgentError
from faultset.collector.agent.impairments import KINDS, read_impairment
from faultset.collector.agent.leases import Leases
from faultset.collector.agent.networks import Network
from faultset.collector.agent.pods import OwnPod, Pods
from faultset.collector.agent.protocol import LEASE_S, SOCKET
from faultset.collector.agent.scheduling_delay import SchedulingDelay

_START_TIMEOUT_S = 10.0
_ANSWER_TIMEOUT_S = 25.0
_POLL_S = 0.1
_READINGS, _READING_PAUSE_S = 5, 0.02

logger = logging.getLogger(__name__)


class Verbs:
    """What can be asked of the program; a request is the arguments of a verb."""

    def __init__(self, pods: Pods, active: ActiveImpairments, abilities: Abilities, delay: SchedulingDelay):
        self._pods, self._active, self._abilities, self._delay = pods, active, abilities, delay
        self.table: Mapping[str, Callable[..., dict[str, Any]]] = {
            "capabilities": self.find_capabilities,
            "node": self.read_node,
            "impair": self.impair,
            "renew": self.renew,
            "lift": self.lift,
            "packets": self.count_packets,
            "kill": self.kill,
            "remove-volumes": self.remove_volumes,
        }

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request, which is an error where it is refused."""
        arguments = dict(request)
        verb = self.table.get(arguments.pop("verb", ""))
        if verb is None:
            return {"error": f"the agent has no such verb; it has {', '.join(self.table)}"}
        try:
            return verb(**arguments)
        except (AgentError, TypeError, ValueError, OSError) as error:
            return {"error": str(error)}

    def find_capabilities(self) -> dict[str, Any]:
        """Return what can be done here, and why the rest cannot."""
        can = {act: self._abilities.can(act) for act in (*KINDS, "kill")}
        return {**can, "reasons": self._abilities.reasons}

    def read_node(self, reset: bool = False) -> dict[str, Any]:
        """Return how busy the node is, since the last call with `reset`."""
        return {
            "load_average": os.getloadavg()[0],
            "cores": os.cpu_count() or 1,
            "worst_delay_s": self._delay.worst_s(reset=reset),
        }

    def impair(self, pod: str, impairment: Mapping[str, Any], lease_s: float = LEASE_S) -> dict[str, Any]:
        """Impair the network of a pod, by its uid, until its lease ends."""
        wish = read_impairment(impairment)
        if not self._abilities.can(wish.kind):
            raise AgentError(f"{wish.kind} cannot be made here: {self._abilities.reasons[wish.kind]}")
        self._active.impair(pod, wish, lease_s)
        return {}

    def renew(self, pod: str) -> dict[str, Any]:
        """Prolong the lease of a pod."""
        return {"known": not self._active.renew([pod])}

    def lift(self, pod: str) -> dict[str, Any]:
        """End the impairment of a pod, by its uid or its name."""
        names = self._pods.names()
        for uid in {pod, *(uid for uid in self._active.pods() if names.get(uid) == pod)}:
            self._active.lift(uid)
        return {}

    def count_packets(self, pod: str) -> dict[str, Any]:
        """Return how many packets the impairment of a pod has met so far."""
        return {"packets": self._active.packets(pod)}

    def kill(self, pod: str, container: str) -> dict[str, Any]:
        """Send SIGKILL to the main process of a container, by its id."""
        if not self._abilities.can("kill"):
            raise AgentError(self._abilities.reasons["kill"])
        return {"pid": self._pods.kill(pod, container)}

    def remove_volumes(self, paths: Sequence[str]) -> dict[str, Any]:
        """Remove folders of volumes with all that is in them."""
        volumes.remove(paths)
        return {}


class AgentServer(socketserver.ThreadingUnixStreamServer):
    """Answers one request on each connection to a socket of the file system."""

    daemon_threads = True

    def __init__(self, path: Path, verbs: Verbs):
        self.verbs = verbs
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        super().__init__(str(path), _Handler)


class _Handler(socketserver.StreamRequestHandler):
    timeout = _ANSWER_TIMEOUT_S

    def handle(self) -> None:
        request = json.loads(self.rfile.readline())
        assert isinstance(self.server, AgentServer)
        self.wfile.write(json.dumps(self.server.verbs.answer(request)).encode() + b"\n")


def ask(path: Path, verb: str, arguments: Mapping[str, Any]) -> str:
    """Return the watching process' answer as JSON; it may have to come up first.

    Raises
    ------
    AgentError
        Nobody answers.
    """
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_TIMEOUT_S)
            try:
                connection.connect(str(path))
            except (FileNotFoundError, ConnectionRefusedError):
                if time.monotonic() > deadline:
                    raise AgentError("nothing watches over leases here") from None
                time.sleep(_POLL_S)
                continue
            connection.sendall(json.dumps({"verb": verb, **arguments}).encode() + b"\n")
            return connection.makefile().readline()


def watch(namespace: str, path: Path = Path(SOCKET)) -> int:
    """Answer requests and lift what expires until SIGTERM, then lift everything; return the exit code.

    Parameters
    ----------
    namespace
        The only one whose pods on this node are touched; empty for the pod around this process.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    pods = Pods(namespace) if namespace else OwnPod()
    abilities = find_abilities(pods.unavailable_reason()).without(pods.impossible)
    active = ActiveImpairments(
        pods,
        Leases(),
        lambda descriptor: Network(descriptor if namespace else None, variant=abilities.variant),
    )
    left = active.take_over()
    server = AgentServer(path, Verbs(pods, active, abilities, SchedulingDelay()))
    threading.Thread(target=server.serve_forever, name="requests", daemon=True).start()
    logger.info("ready; cannot %s; taken over: %s", abilities.reasons or "nothing", left or "nothing")
    while not stop.wait(TICK_S):
        active.lift_expired()
    server.shutdown()
    active.lift_all()
    return 0


def print_clock() -> int:
    """Print the time a few times, each line as it is; whoever reads them takes the quickest."""
    for _ in range(_READINGS):
        print(time.time_ns(), flush=True)
        time.sleep(_READING_PAUSE_S)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run `watch [NAMESPACE]`, `clock`, or another verb with its arguments as JSON; return the exit code."""
    verb, *rest = sys.argv[1:] if argv is None else argv
    if verb == "watch":
        return watch(rest[0] if rest else "")
    if verb == "clock":
        return print_clock()
    try:
        print(ask(Path(SOCKET), verb, json.loads(rest[0]) if rest else {}))
    except (AgentError, OSError) as error:
        print(json.dumps({"error": str(error)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
