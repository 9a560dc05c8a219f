"""The program that impairs pods, on a node or inside a pod; the collector calls it by exec.

The container runs `watch`, which holds the impairments and lifts expired ones. Each exec runs another verb, which sends
its request to `watch` through a socket in the container and prints the response: a JSON object, or
`{"error": SENTENCE}` if the request is refused. Requests never use the pod's network, which may be cut."""

from __future__ import annotations

import contextlib
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

from faultset.collector.agent.networks import AgentError, Network, NetworkImpairment, find_unsupported, read_impairment
from faultset.collector.agent.pods import OwnPod, Pods

SOCKET = "/tmp/faultset/agent.sock"
"""Socket of the `watch` process, in its container's file system."""

LEASE_S = 30.0
"""How long an impairment lasts without renewal."""

VOLUME_ROOT = "/var/lib/faultset"
"""Node folder that contains the volumes of databases."""


MAX_LEASE_S = 120.0


logger = logging.getLogger(__name__)

TICK_S = 0.5


class ActiveImpairments:
    """The impaired pods of one node, each with an open file of its network namespace.

    The open file keeps the namespace reachable after the pod's last process has ended, and always refers to the same
    pod.
    """

    def __init__(self, pods: Pods, network: Callable[[int], Network], *, clock: Callable[[], float] = time.monotonic):
        self._pods, self._network, self._clock = pods, network, clock
        self._descriptors: dict[str, int] = {}
        self._leases: dict[str, tuple[float, float]] = {}
        self._lock = threading.RLock()

    def impair(self, uid: str, impairment: NetworkImpairment, lease_s: float) -> None:
        """Impair a pod until its lease expires; replaces an earlier impairment.

        Raises
        ------
        AgentError
            The pod belongs to another namespace, or the kernel rejects the rules. No rule is left behind.
        """
        with self._lock:
            descriptor = self._pods.open_network(uid)
            self._close(uid)
            self._descriptors[uid] = descriptor
            try:
                self._grant(uid, lease_s)
                self._network(descriptor).impair(impairment)
            except AgentError:
                self.lift(uid)
                raise

    def renew(self, uid: str) -> bool:
        """Restart the lease of a pod, even an expired one; return whether it has one."""
        with self._lock:
            if uid in self._leases:
                self._grant(uid, self._leases[uid][1])
            return uid in self._leases

    def lift(self, uid: str) -> None:
        """End the impairment of a pod, if it has one.

        Raises
        ------
        AgentError
            The rules could not be removed; `lift_expired` retries.
        """
        with self._lock:
            descriptor = self._descriptors.get(uid)
            if descriptor is not None:
                try:
                    self._network(descriptor).lift()
                except AgentError:
                    self._grant(uid, TICK_S)
                    raise
            self._leases.pop(uid, None)
            self._close(uid)

    def packets(self, uid: str) -> int:
        """Return how many packets of a pod have been impaired so far."""
        with self._lock:
            descriptor = self._descriptors.get(uid)
            return 0 if descriptor is None else self._network(descriptor).packets()

    def pods(self) -> list[str]:
        with self._lock:
            return list(self._descriptors)

    def lift_expired(self) -> None:
        with self._lock:
            now = self._clock()
            self._lift_each([uid for uid, (end, _) in self._leases.items() if end <= now])

    def lift_all(self) -> None:
        with self._lock:
            self._lift_each(list(self._descriptors))

    def adopt(self, lease_s: float = LEASE_S) -> list[str]:
        """Grant a lease to pods that an earlier agent left impaired; return their uids."""
        adopted = []
        with self._lock:
            uids = {process.owner.pod_uid for process in self._pods.processes()} & self._pods.names().keys()
            for uid in sorted(uids - self._descriptors.keys()):
                with contextlib.suppress(AgentError):
                    descriptor = self._pods.open_network(uid)
                    if self._network(descriptor).is_marked():
                        self._descriptors[uid] = descriptor
                        self._grant(uid, lease_s)
                        adopted.append(uid)
                    else:
                        os.close(descriptor)
        return adopted

    def _grant(self, uid: str, length_s: float) -> None:
        if isinstance(length_s, bool) or not isinstance(length_s, int | float) or not 0 < length_s <= MAX_LEASE_S:
            raise AgentError(f"a lease must last more than 0 and at most {MAX_LEASE_S:g} s, got {length_s!r}")
        self._leases[uid] = (self._clock() + length_s, length_s)

    def _lift_each(self, uids: list[str]) -> None:
        for uid in uids:
            try:
                self.lift(uid)
                logger.info("lifted the impairment of pod %s", uid)
            except AgentError as error:
                logger.warning("pod %s: %s", uid, error)

    def _close(self, uid: str) -> None:
        descriptor = self._descriptors.pop(uid, None)
        if descriptor is not None:
            os.close(descriptor)


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


class Verbs:
    """The verbs that the watching process serves; a request contains a verb and its arguments."""

    def __init__(self, pods: Pods, active: ActiveImpairments, unsupported: Mapping[str, str], delay: SchedulingDelay):
        self._pods, self._active, self._unsupported, self._delay = pods, active, unsupported, delay
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
        """Return the unsupported impairment kinds (and `kill`), each with the reason."""
        return {"reasons": dict(self._unsupported)}

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
        if reason := self._unsupported.get(request.kind):
            raise AgentError(f"{request.kind} is not supported here: {reason}")
        self._active.impair(pod, request, lease_s)
        return {}

    def renew(self, pod: str) -> dict[str, Any]:
        """Renew the lease of a pod; `renewed` is false if it has none."""
        return {"renewed": self._active.renew(pod)}

    def lift(self, pod: str) -> dict[str, Any]:
        """End the impairment of a pod, named by its uid or its name."""
        names = self._pods.names()
        for uid in {pod, *(uid for uid in self._active.pods() if names.get(uid) == pod)}:
            self._active.lift(uid)
        return {}

    def count_packets(self, pod: str) -> dict[str, Any]:
        return {"packets": self._active.packets(pod)}

    def kill(self, pod: str, container: str) -> dict[str, Any]:
        """Send SIGKILL to the main process of a container, named by its id."""
        if reason := self._unsupported.get("kill"):
            raise AgentError(reason)
        return {"pid": self._pods.kill(pod, container)}

    def remove_volumes(self, paths: Sequence[str]) -> dict[str, Any]:
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
    variant, reasons = find_unsupported(pods.unavailable_reason())
    unsupported = {**reasons, **pods.unsupported_verbs}
    active = ActiveImpairments(pods, lambda descriptor: Network(descriptor if namespace else None, variant=variant))
    adopted = active.adopt()
    server = AgentServer(path, Verbs(pods, active, unsupported, SchedulingDelay()))
    threading.Thread(target=server.serve_forever, name="requests", daemon=True).start()
    logger.info("ready; not supported: %s; adopted pods: %s", unsupported or "none", adopted or "none")
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
