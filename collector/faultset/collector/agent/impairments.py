"""What is done to a pod's packets, as rules of the kernel.

Loss and partition are rules of iptables in chains of our own, which the chains OUTPUT and INPUT enter first; delay is
a queueing discipline `netem` under a handle of our own. All spare the loopback interface.

TCP takes a packet that iptables drops on its way out for one lost in the network: connections come up 1, 3, 7 s late
and data 0.2, 0.4, 0.8 s. Whoever sends a datagram, as resolvers of names do, sees `EPERM` at once instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from faultset.collector.agent.errors import AgentError

OUT, IN = "FAULTSET-OUT", "FAULTSET-IN"
HANDLE = "fa17:"
KINDS = ("loss", "partition", "delay")
MOST_LATENCY_S = 60.0
_JUMPS = (f"-A OUTPUT -j {OUT}", f"-A INPUT -j {IN}")
_QUEUE_PACKETS = 100_000


@dataclass(frozen=True, kw_only=True)
class NetworkImpairment:
    """One kind of impairment with its measure."""

    kind: str
    probability: float = 1.0
    latency_s: float = 0.0
    jitter_s: float = 0.0


def read_impairment(request: Any) -> NetworkImpairment:
    """Read a impairment from its JSON form; raise AgentError when it is none."""
    if not isinstance(request, Mapping) or request.get("kind") not in KINDS:
        raise AgentError(f"an impairment has a kind of {', '.join(KINDS)}; found {request!r}")
    match request["kind"]:
        case "loss":
            return NetworkImpairment(kind="loss", probability=_number(request, "probability", 0.0, 1.0))
        case "delay":
            jitter_s = _number(request, "jitter_s", -1.0, MOST_LATENCY_S) if request.get("jitter_s") else 0.0
            return NetworkImpairment(
                kind="delay", latency_s=_number(request, "latency_s", 0.0, MOST_LATENCY_S), jitter_s=jitter_s
            )
    return NetworkImpairment(kind="partition")


def _number(request: Mapping[str, Any], name: str, above: float, most: float) -> float:
    value = request.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not (above < value <= most):
        raise AgentError(
            f"{request['kind']} needs {name} above {max(above, 0):g} and at most {most:g}; found {value!r}"
        )
    return float(value)


def rules_of(impairment: NetworkImpairment) -> list[str]:
    """Return the rules of our chains, as `iptables-save` has them."""
    match impairment.kind:
        case "loss":
            share = f"{impairment.probability:.11f}"
            random = "" if impairment.probability >= 1 else f" -m statistic --mode random --probability {share}"
            return [f"-A {OUT} ! -o lo{random} -j DROP"]
        case "partition":
            return [f"-A {OUT} ! -o lo -j DROP", f"-A {IN} ! -i lo -j DROP"]
    return []


def restore_text(present: str, impairment: NetworkImpairment | None) -> str:
    """Return what `iptables-restore --noflush` turns the present rules into, in one step.

    Parameters
    ----------
    present
        Answer to `iptables -S`.
    impairment
        What is wanted; None for nothing of ours.

    Returns
    -------
    str
        Empty when there is nothing to change.
    """
    lines = present.splitlines()
    chains = [chain for chain in (OUT, IN) if f"-N {chain}" in lines]
    jumps = [line for line in lines if line in _JUMPS]
    wanted = rules_of(impairment) if impairment is not None else []
    if not wanted and not chains and not jumps:
        return ""
    made = ["*filter"]
    if wanted:
        made += [f":{chain} - [0:0]" for chain in (OUT, IN)]
        made += [f"-D{jump.removeprefix('-A')}" for jump in jumps]
        made += wanted
        made += [jump.replace("-A OUTPUT", "-I OUTPUT 1").replace("-A INPUT", "-I INPUT 1") for jump in _JUMPS]
    else:
        made += [f"-D{jump.removeprefix('-A')}" for jump in jumps]
        made += [f"-{letter} {chain}" for letter in "FX" for chain in chains]
    return "\n".join([*made, "COMMIT", ""])


def is_marked(present: str) -> bool:
    """Say whether something of ours is among the rules that `iptables -S` shows."""
    return any(line in _JUMPS or line in (f"-N {OUT}", f"-N {IN}") for line in present.splitlines())


def is_in_force(present: str, impairment: NetworkImpairment) -> bool:
    """Say whether the rules that `iptables -S` shows are those of a impairment, and are entered."""
    lines = present.splitlines()
    ours = [line for line in lines if line.startswith((f"-A {OUT} ", f"-A {IN} "))]
    wanted = sorted(_essence(rule) for rule in rules_of(impairment))
    return all(jump in lines for jump in _JUMPS) and sorted(_essence(line) for line in ours) == wanted


def _essence(rule: str) -> tuple[str, bool, float]:
    words = rule.split()
    share = float(words[words.index("--probability") + 1]) if "--probability" in words else 1.0
    return words[1], "DROP" in words, round(share, 4)


def dropped_packets(listing: str) -> int:
    """Return how many packets our chains have dropped, from `iptables -L -v -x -n`."""
    count, inside = 0, False
    for line in listing.splitlines():
        words = line.split()
        if line.startswith("Chain "):
            inside = words[1] in (OUT, IN)
        elif inside and len(words) > 3 and words[0].isdigit() and words[2] == "DROP":
            count += int(words[0])
    return count


def netem_words(impairment: NetworkImpairment) -> list[str]:
    """Return the discipline as `tc qdisc` takes it."""
    words = ["root", "handle", HANDLE, "netem", "limit", str(_QUEUE_PACKETS), "delay", _ms(impairment.latency_s)]
    return [*words, _ms(impairment.jitter_s)] if impairment.jitter_s else words


def _ms(seconds: float) -> str:
    return f"{max(1, math.ceil(1000 * seconds))}ms"


def delayed_packets(disciplines: list[dict[str, Any]]) -> int:
    """Return how many packets our disciplines have passed on, from `tc -s -j qdisc show`."""
    return sum(int(one.get("packets", 0)) for one in disciplines if one.get("handle") == HANDLE)
