"""Kernel rules that impair a pod's packets.

Loss and partition are iptables rules in our own chains, to which OUTPUT and INPUT jump first. Delay is a `netem`
queueing discipline with our own handle. The loopback interface is not affected.

TCP treats an outgoing packet that iptables drops as lost in the network: connections open 1, 3 or 7 s late, and data
arrives 0.2, 0.4 or 0.8 s late. A program that sends datagrams, such as a name resolver, gets `EPERM` immediately.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from faultset.collector.agent.protocol import AgentError

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
