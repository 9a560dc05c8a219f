"""Kernel rules that impair a pod's packets.

Loss and partition are iptables rules in our own chains, to which OUTPUT and INPUT jump first. Delay is a `netem`
queueing discipline with our own handle. The loopback interface is not affected.

TCP treats an outgoing packet that iptables drops as lost in the network: connections open 1, 3 or 7 s late, and data
arrives 0.2, 0.4 or 0.8 s late. A program that sends datagrams, such as a name resolver, gets `EPERM` immediately."""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OUT, IN = "FAULTSET-OUT", "FAULTSET-IN"
HANDLE = "fa17:"
KINDS = ("loss", "partition", "delay")
MAX_LATENCY_S = 60.0
_JUMP_RULES = (f"-A OUTPUT -j {OUT}", f"-A INPUT -j {IN}")
_QUEUE_PACKETS = 100_000


@dataclass(frozen=True, kw_only=True)
class NetworkImpairment:
    """An impairment kind with its parameters."""

    kind: str
    probability: float = 1.0
    latency_s: float = 0.0
    jitter_s: float = 0.0


def read_impairment(request: Any) -> NetworkImpairment:
    """Return the impairment in a JSON object; raise AgentError if it is invalid."""
    if not isinstance(request, Mapping) or request.get("kind") not in KINDS:
        raise AgentError(f"an impairment must have a kind of {', '.join(KINDS)}, got {request!r}")
    match request["kind"]:
        case "loss":
            return NetworkImpairment(kind="loss", probability=_read_number(request, "probability", 0.0, 1.0))
        case "delay":
            jitter_s = _read_number(request, "jitter_s", -1.0, MAX_LATENCY_S) if request.get("jitter_s") else 0.0
            return NetworkImpairment(
                kind="delay", latency_s=_read_number(request, "latency_s", 0.0, MAX_LATENCY_S), jitter_s=jitter_s
            )
    return NetworkImpairment(kind="partition")


def _read_number(request: Mapping[str, Any], name: str, above: float, maximum: float) -> float:
    value = request.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not (above < value <= maximum):
        raise AgentError(
            f"{name} of {request['kind']} must be above {max(above, 0):g} and at most {maximum:g}, got {value!r}"
        )
    return float(value)


def list_rules(impairment: NetworkImpairment) -> list[str]:
    """Return the rules that our chains need for an impairment, in `iptables-save` format."""
    match impairment.kind:
        case "loss":
            share = f"{impairment.probability:.11f}"
            random = "" if impairment.probability >= 1 else f" -m statistic --mode random --probability {share}"
            return [f"-A {OUT} ! -o lo{random} -j DROP"]
        case "partition":
            return [f"-A {OUT} ! -o lo -j DROP", f"-A {IN} ! -i lo -j DROP"]
    return []


def format_restore_input(current: str, impairment: NetworkImpairment | None) -> str:
    """Return the input for `iptables-restore --noflush` that sets an impairment atomically.

    Parameters
    ----------
    current
        Output of `iptables -S`.
    impairment
        None to remove our rules.

    Returns
    -------
    str
        Empty if the rules need no change.
    """
    lines = current.splitlines()
    chains = [chain for chain in (OUT, IN) if f"-N {chain}" in lines]
    jumps = [line for line in lines if line in _JUMP_RULES]
    rules = list_rules(impairment) if impairment is not None else []
    if not rules and not chains and not jumps:
        return ""
    text = ["*filter"]
    if rules:
        text += [f":{chain} - [0:0]" for chain in (OUT, IN)]
        text += [f"-D{jump.removeprefix('-A')}" for jump in jumps]
        text += rules
        text += [jump.replace("-A OUTPUT", "-I OUTPUT 1").replace("-A INPUT", "-I INPUT 1") for jump in _JUMP_RULES]
    else:
        text += [f"-D{jump.removeprefix('-A')}" for jump in jumps]
        text += [f"-{letter} {chain}" for letter in "FX" for chain in chains]
    return "\n".join([*text, "COMMIT", ""])


def is_marked(current: str) -> bool:
    """Return whether the output of `iptables -S` contains our chains or jumps to them."""
    return any(line in _JUMP_RULES or line in (f"-N {OUT}", f"-N {IN}") for line in current.splitlines())


def is_in_force(current: str, impairment: NetworkImpairment) -> bool:
    """Return whether the output of `iptables -S` contains exactly an impairment's rules and the jumps to them."""
    lines = current.splitlines()
    ours = [line for line in lines if line.startswith((f"-A {OUT} ", f"-A {IN} "))]
    rules = sorted(_summarise_rule(rule) for rule in list_rules(impairment))
    return all(jump in lines for jump in _JUMP_RULES) and sorted(_summarise_rule(line) for line in ours) == rules


def _summarise_rule(rule: str) -> tuple[str, bool, float]:
    words = rule.split()
    share = float(words[words.index("--probability") + 1]) if "--probability" in words else 1.0
    return words[1], "DROP" in words, round(share, 4)


def count_dropped_packets(listing: str) -> int:
    """Return how many packets our chains dropped, from the output of `iptables -L -v -x -n`."""
    count, inside = 0, False
    for line in listing.splitlines():
        words = line.split()
        if line.startswith("Chain "):
            inside = words[1] in (OUT, IN)
        elif inside and len(words) > 3 and words[0].isdigit() and words[2] == "DROP":
            count += int(words[0])
    return count


def list_netem_arguments(impairment: NetworkImpairment) -> list[str]:
    """Return the arguments of `tc qdisc replace dev DEVICE` that set a delay."""
    words = ["root", "handle", HANDLE, "netem", "limit", str(_QUEUE_PACKETS), "delay", _format_ms(impairment.latency_s)]
    return [*words, _format_ms(impairment.jitter_s)] if impairment.jitter_s else words


def _format_ms(seconds: float) -> str:
    return f"{max(1, math.ceil(1000 * seconds))}ms"


def count_delayed_packets(disciplines: list[dict[str, Any]]) -> int:
    """Return how many packets our disciplines forwarded, from the output of `tc -s -j qdisc show`."""
    return sum(int(queue.get("packets", 0)) for queue in disciplines if queue.get("handle") == HANDLE)


_TIMEOUT_S = 15.0
_COMMAND_INFIXES = ("", "6")
_TEST_CHAIN = "FAULTSET-TEST"


class Network:
    """One network namespace.

    Parameters
    ----------
    descriptor
        An open file of the namespace; None for the namespace of this process.
    variant
        Suffix of the iptables command that works here, empty or `-legacy`.
    """

    def __init__(self, descriptor: int | None = None, *, variant: str = ""):
        self._descriptor, self._variant = descriptor, variant

    def impair(self, impairment: NetworkImpairment) -> None:
        """Set an impairment, replacing an earlier one; raise AgentError if the kernel rejects it."""
        if impairment.kind == "delay":
            self._set_rules(None)
            for device in self._devices():
                self._run("tc", "qdisc", "replace", "dev", device, *list_netem_arguments(impairment))
        else:
            self._remove_queues()
            self._set_rules(impairment)
        if not self.holds(impairment):
            raise AgentError(f"the kernel accepted the rules for {impairment.kind} but does not list them")

    def lift(self) -> None:
        self._set_rules(None)
        self._remove_queues()

    def is_marked(self) -> bool:
        return any(is_marked(self._rules(family)) for family in self._families()) or bool(self._queues())

    def holds(self, impairment: NetworkImpairment) -> bool:
        """Return whether an impairment is in force."""
        if impairment.kind == "delay":
            return len(self._queues()) == len(self._devices()) > 0
        return all(is_in_force(self._rules(family), impairment) for family in self._families())

    def packets(self) -> int:
        """Return how many packets have been impaired since the current impairment was set."""
        count = 0
        for family in self._families():
            if is_marked(self._rules(family)):
                count += count_dropped_packets(self._run(self._iptables(family), "-w", "5", "-L", "-v", "-x", "-n"))
        return count + count_delayed_packets(self._disciplines())

    def try_rules(self, impairment: NetworkImpairment) -> None:
        """Set an impairment's rules in an unused chain and remove them; raise AgentError if that fails."""
        rules = [rule.replace(OUT, _TEST_CHAIN).replace(IN, _TEST_CHAIN) for rule in list_rules(impairment)]
        restore, empty = f"{self._iptables('')}-restore", f"*filter\n:{_TEST_CHAIN} - [0:0]\n"
        try:
            self._run(restore, "-w", "5", "--noflush", stdin="\n".join([f"{empty}{rules[0]}", *rules[1:], "COMMIT\n"]))
        finally:
            self._run(restore, "-w", "5", "--noflush", stdin=f"{empty}-X {_TEST_CHAIN}\nCOMMIT\n", allow_failure=True)

    def try_queue(self, impairment: NetworkImpairment) -> None:
        """Delay the loopback interface briefly; raise AgentError if that fails."""
        self._run("tc", "qdisc", "replace", "dev", "lo", *list_netem_arguments(impairment))
        self._run("tc", "qdisc", "del", "dev", "lo", "root")

    def _set_rules(self, impairment: NetworkImpairment | None) -> None:
        for family in self._families():
            text = format_restore_input(self._rules(family), impairment)
            if text:
                self._run(f"{self._iptables(family)}-restore", "-w", "5", "--noflush", stdin=text)

    def _rules(self, family: str) -> str:
        return self._run(self._iptables(family), "-w", "5", "-S")

    def _iptables(self, family: str) -> str:
        return f"ip{family}tables{self._variant}"

    def _families(self) -> Sequence[str]:
        """Return the infix of the iptables command per IP version; IPv6 only if the pod has a routable address."""
        addresses = self._run("cat", "/proc/self/net/if_inet6", allow_failure=True)
        has_ipv6 = any(len(words := line.split()) > 3 and words[3] == "00" for line in addresses.splitlines())
        return _COMMAND_INFIXES if has_ipv6 else _COMMAND_INFIXES[:1]

    def _devices(self) -> list[str]:
        lines = self._run("cat", "/proc/self/net/dev").splitlines()[2:]
        return [name for line in lines if (name := line.partition(":")[0].strip()) != "lo"]

    def _disciplines(self) -> list[dict[str, object]]:
        return json.loads(self._run("tc", "-s", "-j", "qdisc", "show") or "[]")

    def _queues(self) -> list[str]:
        return [str(queue["dev"]) for queue in self._disciplines() if queue.get("handle") == HANDLE]

    def _remove_queues(self) -> None:
        for device in self._queues():
            self._run("tc", "qdisc", "del", "dev", device, "root")

    def _run(self, *argv: str, stdin: str | None = None, allow_failure: bool = False) -> str:
        prefix, descriptors = [], ()
        if self._descriptor is not None:
            prefix, descriptors = ["nsenter", f"--net=/proc/self/fd/{self._descriptor}", "--"], (self._descriptor,)
        try:
            result = subprocess.run(
                [*prefix, *argv],
                input=stdin,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                pass_fds=descriptors,
                env={**os.environ, "LC_ALL": "C"},
            )
        except FileNotFoundError:
            raise AgentError(f"the image does not contain {argv[0]}") from None
        except subprocess.TimeoutExpired:
            raise AgentError(f"{argv[0]} took longer than {_TIMEOUT_S:g} s") from None
        if result.returncode and not allow_failure:
            message = " ".join((result.stderr or result.stdout).split())[:300]
            raise AgentError(f"{' '.join(argv[:3])} failed with code {result.returncode}: {message}")
        return result.stdout


class AgentError(Exception):
    """The agent refuses or cannot fulfil a request; the message is one sentence for the collector."""


VARIANTS = ("", "-legacy")
_TRIAL_IMPAIRMENTS = {
    "loss": NetworkImpairment(kind="loss", probability=0.5),
    "partition": NetworkImpairment(kind="partition"),
}


def find_unsupported(unavailable_reason: str = "") -> tuple[str, dict[str, str]]:
    """Test every impairment kind by setting it where it is harmless and removing it.

    Parameters
    ----------
    unavailable_reason
        Why no pod can be impaired at all (see `Pods.unavailable_reason`); empty to run the tests.

    Returns
    -------
    str
        Suffix of the iptables command that works, empty or `-legacy`.
    dict
        Why impairment kinds or `kill` do not work; empty if all do.
    """
    if unavailable_reason:
        return "", dict.fromkeys((*KINDS, "kill"), unavailable_reason)
    failures = {variant: _try_rules(variant) for variant in VARIANTS}
    variant = min(VARIANTS, key=lambda suffix: len(failures[suffix]))
    reasons = dict(failures[variant])
    try:
        Network().try_queue(NetworkImpairment(kind="delay", latency_s=0.001))
    except AgentError as error:
        reasons["delay"] = f"the kernel does not support netem ({error})"
    return variant, reasons


def _try_rules(variant: str) -> dict[str, str]:
    reasons = {}
    for kind, trial in _TRIAL_IMPAIRMENTS.items():
        try:
            Network(variant=variant).try_rules(trial)
        except AgentError as error:
            reasons[kind] = str(error)
    return reasons
