"""The program that impairs pods, on a node or inside a pod; the collector calls it by exec.

The container runs `watch`, which holds the impairments and lifts expired ones. Each exec runs another verb, which sends
its request to `watch` through a socket in the container and prints the response: a JSON object, or
`{"error": SENTENCE}` if the request is refused. Requests never use the pod's network, which may be cut.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from faultset.collector.agent.active_impairments import TICK_S, ActiveImpairments, Leases
from faultset.collector.agent.capabilities import Abilities, find_abilities
from faultset.collector.agent.impairments import KINDS, read_impairment
from faultset.collector.agent.networks import Network
from faultset.collector.agent.pods import OwnPod, Pods
from faultset.collector.agent.protocol import LEASE_S, SOCKET, VOLUME_ROOT, AgentError

ROOT = Path(VOLUME_ROOT)


def remove_volumes(paths: Sequence[str], *, root: Path = ROOT) -> None:
    """Remove volume folders with their content; missing ones are skipped."""
    for path in _check_paths(paths, root):
        if path.exists():
            shutil.rmtree(path)


def _check_paths(paths: Sequence[str], root: Path) -> list[Path]:
    """Return the paths; raise AgentError if one is outside the root after resolving links."""
    valid_paths = []
    if isinstance(paths, str) or not all(isinstance(path, str) for path in paths):
        raise AgentError(f"paths must be a list of strings, got {paths!r}")
    for name in paths:
        path = Path(name)
        parts = path.relative_to(root).parts if path.is_relative_to(root) else ()
        if not parts or ".." in parts or path.resolve() != root.resolve() / Path(*parts):
            raise AgentError(f"{name} cannot be removed; volumes must be below {root}")
        valid_paths.append(path)
    return valid_paths


_STEP_S = 0.05


class SchedulingDelay:
    """Measures scheduling delays with a thread that should wake every 50 ms."""

    def __init__(self) -> None:
        self._worst_s = 0.0
        self._closed = threading.Event()
        threading.Thread(target=self._measure, name="delay", daemon=True).start()

    def worst_s(self, *, reset: bool = False) -> float:
        """Return the worst delay since the last reset, in seconds."""
        worst_s = self._worst_s
        if reset:
            self._worst_s = 0.0
        return worst_s

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _measure(self) -> None:
        before = time.monotonic()
        while not self._closed.wait(_STEP_S):
            now = time.monotonic()
            self._worst_s = max(self._worst_s, now - before - _STEP_S)
            before = now


_START_TIMEOUT_S = 10.0
_RESPONSE_TIMEOUT_S = 25.0
_POLL_S = 0.1
_READING_COUNT, _READING_PAUSE_S = 5, 0.02

logger = logging.getLogger(__name__)


class Verbs:
    """The verbs that the watching process serves; a request contains a verb and its arguments."""

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
        """Return the response to a request, or an error if it is refused."""
        arguments = dict(request)
        verb = self.table.get(arguments.pop("verb", ""))
        if verb is None:
            return {"error": f"the verb must be one of {', '.join(self.table)}, got {request.get('verb')!r}"}
        try:
            return verb(**arguments)
        except (AgentError, TypeError, ValueError, OSError) as error:
            return {"error": str(error)}

    def find_capabilities(self) -> dict[str, Any]:
        """Return which impairment kinds work here, and why the others do not."""
        supported = {kind: self._abilities.can(kind) for kind in (*KINDS, "kill")}
        return {**supported, "reasons": self._abilities.reasons}

    def read_node(self, reset: bool = False) -> dict[str, Any]:
        """Return the node's load, and the worst scheduling delay since the last call with `reset`."""
        return {
            "load_average": os.getloadavg()[0],
            "cores": os.cpu_count() or 1,
            "worst_delay_s": self._delay.worst_s(reset=reset),
        }

    def impair(self, pod: str, impairment: Mapping[str, Any], lease_s: float = LEASE_S) -> dict[str, Any]:
        """Impair the network of a pod, named by its uid, until its lease expires."""
        request = read_impairment(impairment)
        if not self._abilities.can(request.kind):
            raise AgentError(f"{request.kind} is not supported here: {self._abilities.reasons[request.kind]}")
        self._active.impair(pod, request, lease_s)
        return {}

    def renew(self, pod: str) -> dict[str, Any]:
        """Renew the lease of a pod; `renewed` is false if it has none."""
        return {"renewed": not self._active.renew([pod])}

    def lift(self, pod: str) -> dict[str, Any]:
        """End the impairment of a pod, named by its uid or its name."""
        names = self._pods.names()
        for uid in {pod, *(uid for uid in self._active.pods() if names.get(uid) == pod)}:
            self._active.lift(uid)
        return {}

    def count_packets(self, pod: str) -> dict[str, Any]:
        """Return how many packets of a pod have been impaired so far."""
        return {"packets": self._active.packets(pod)}

    def kill(self, pod: str, container: str) -> dict[str, Any]:
        """Send SIGKILL to the main process of a container, named by its id."""
        if not self._abilities.can("kill"):
            raise AgentError(self._abilities.reasons["kill"])
        return {"pid": self._pods.kill(pod, container)}

    def remove_volumes(self, paths: Sequence[str]) -> dict[str, Any]:
        """Remove volume folders with their content."""
        remove_volumes(paths)
        return {}


class AgentServer(socketserver.ThreadingUnixStreamServer):
    """Handles one request per connection to a Unix socket."""

    daemon_threads = True

    def __init__(self, path: Path, verbs: Verbs):
        self.verbs = verbs
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        super().__init__(str(path), _Handler)


class _Handler(socketserver.StreamRequestHandler):
    timeout = _RESPONSE_TIMEOUT_S

    def handle(self) -> None:
        request = json.loads(self.rfile.readline())
        assert isinstance(self.server, AgentServer)
        self.wfile.write(json.dumps(self.server.verbs.answer(request)).encode() + b"\n")


def ask(path: Path, verb: str, arguments: Mapping[str, Any]) -> str:
    """Send a request to the `watch` process and return its response as JSON.

    Raises
    ------
    AgentError
        The process does not start within 10 s.
    """
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_RESPONSE_TIMEOUT_S)
            try:
                connection.connect(str(path))
            except (FileNotFoundError, ConnectionRefusedError):
                if time.monotonic() > deadline:
                    raise AgentError(f"nothing listens at {path}; the container must run `watch`") from None
                time.sleep(_POLL_S)
                continue
            connection.sendall(json.dumps({"verb": verb, **arguments}).encode() + b"\n")
            return connection.makefile().readline()


def watch(namespace: str, path: Path = Path(SOCKET)) -> int:
    """Serve requests and lift expired impairments until SIGTERM, then lift all; return the exit code.

    Parameters
    ----------
    namespace
        Namespace whose pods may be impaired; empty for only the pod that this process runs in.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    pods = Pods(namespace) if namespace else OwnPod()
    abilities = find_abilities(pods.unavailable_reason()).without(pods.unsupported_verbs)
    active = ActiveImpairments(
        pods,
        Leases(),
        lambda descriptor: Network(descriptor if namespace else None, variant=abilities.variant),
    )
    adopted = active.adopt()
    server = AgentServer(path, Verbs(pods, active, abilities, SchedulingDelay()))
    threading.Thread(target=server.serve_forever, name="requests", daemon=True).start()
    logger.info("ready; not supported: %s; adopted pods: %s", abilities.reasons or "none", adopted or "none")
    while not stop.wait(TICK_S):
        active.lift_expired()
    server.shutdown()
    active.lift_all()
    return 0


def print_clock() -> int:
    """Print the time several times, unbuffered; the caller uses the reading that arrives with the shortest delay."""
    for _ in range(_READING_COUNT):
        print(time.time_ns(), flush=True)
        time.sleep(_READING_PAUSE_S)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run `watch [NAMESPACE]`, `clock`, or a verb with its arguments as JSON; return the exit code."""
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
