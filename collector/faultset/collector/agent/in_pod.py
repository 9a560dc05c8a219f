"""The same impairments from a container inside the pod, where nothing may run privileged on nodes.

`watch` is what the container runs: it lifts what nobody renews. The other verbs are run beside it, one process each,
and print a JSON object; what is refused is `{"error": SENTENCE}`. No request comes over the network of the pod, which
may be cut.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from faultset.collector.agent.capabilities import find_abilities
from faultset.collector.agent.errors import AgentError
from faultset.collector.agent.impairments import KINDS, read_impairment
from faultset.collector.agent.leases import Leases
from faultset.collector.agent.networks import Network

FOLDER = Path("/tmp/faultset")
_TICK_S = 0.5
_TIMEOUT_S = 10.0


class InPod:
    """The impairment of the pod around this process; its lease is a file that all processes of the container see.

    Parameters
    ----------
    folder
        For the lease and the lock.
    network
        The pod's.
    """

    def __init__(self, folder: Path, network: Network):
        self._lease, self._lock, self._network = folder / "lease", folder / "lock", network

    def impair(self, request: str, length_s: float) -> None:
        """Impair the pod until the lease runs out; raise AgentError, and leave nothing then."""
        impairment = read_impairment(json.loads(request))
        Leases().grant("", length_s)
        with self._locked():
            self._write(length_s)
            try:
                self._network.impair(impairment)
            except AgentError:
                self._lift()
                raise

    def renew(self) -> bool:
        """Prolong the lease by its length; say whether there was one."""
        with self._locked():
            lease = self._read()
            if lease is not None:
                self._write(lease[1])
            return lease is not None

    def lift(self) -> None:
        """End the impairment; nothing happens when there is none."""
        with self._locked():
            self._lift()

    def lift_expired(self) -> None:
        """End the impairment if its lease has run out."""
        with self._locked():
            lease = self._read()
            if lease is not None and lease[0] <= time.monotonic():
                self._lift()

    def packets(self) -> int:
        """Return how many packets the impairment has met; 0 without one."""
        return self._network.packets() if self._read() is not None else 0

    def _lift(self) -> None:
        self._network.lift()
        self._lease.unlink(missing_ok=True)

    def _read(self) -> tuple[float, float] | None:
        with contextlib.suppress(FileNotFoundError):
            end, length_s = json.loads(self._lease.read_text())
            return end, length_s
        return None

    def _write(self, length_s: float) -> None:
        draft = self._lease.with_suffix(".new")
        draft.write_text(json.dumps([time.monotonic() + length_s, length_s]))
        draft.rename(self._lease)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        with self._lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def main(argv: Sequence[str] | None = None) -> int:
    """Watch, or do one thing; return the exit code."""
    parser = argparse.ArgumentParser(prog="faultset.collector.agent.in_pod")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("watch", "renew", "lift", "counters", "capabilities"):
        verbs.add_parser(verb)
    impair = verbs.add_parser("impair")
    impair.add_argument("impairment")
    impair.add_argument("lease_s", type=float)
    arguments = parser.parse_args(argv)
    if arguments.verb == "watch":
        return _watch()
    try:
        answer = _answer(arguments)
    except (AgentError, ValueError, OSError) as error:
        answer = {"error": str(error)}
    print(json.dumps(answer))
    return 0


def _answer(arguments: argparse.Namespace) -> dict[str, object]:
    inside = InPod(FOLDER, Network(variant=_variant()))
    match arguments.verb:
        case "impair":
            inside.impair(arguments.impairment, arguments.lease_s)
        case "renew":
            return {"known": inside.renew()}
        case "lift":
            inside.lift()
        case "counters":
            return {"packets": inside.packets()}
        case "capabilities":
            abilities = find_abilities()
            reasons = {**abilities.reasons, "kill": "ending a container's main process needs the node agent"}
            return {**{kind: abilities.can(kind) for kind in KINDS}, "kill": False, "reasons": reasons}
    return {}


def _variant() -> str:
    """Return which iptables works, as soon as the watching process has found out."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            return (FOLDER / "variant").read_text()
        except FileNotFoundError:
            if time.monotonic() > deadline:
                raise AgentError("nothing watches over leases in this pod") from None
        time.sleep(_TICK_S)


def _watch() -> int:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    FOLDER.mkdir(parents=True, exist_ok=True)
    abilities = find_abilities()
    inside = InPod(FOLDER, Network(variant=abilities.variant))
    draft = FOLDER / f"variant.{os.getpid()}"
    draft.write_text(abilities.variant)
    draft.rename(FOLDER / "variant")
    print(f"ready; cannot {abilities.reasons or 'nothing'}", flush=True)
    while not stop.wait(_TICK_S):
        with contextlib.suppress(AgentError):
            inside.lift_expired()
    with contextlib.suppress(AgentError):
        inside.lift()
    return 0


if __name__ == "__main__":
    sys.exit(main())
