"""What this node's kernel lets us do, found out by trying it in our own network namespace."""

from __future__ import annotations

from dataclasses import dataclass

from faultset.collector.agent.errors import Refusal
from faultset.collector.agent.impairments import KINDS, Disturbance
from faultset.collector.agent.networks import Network

VARIANTS = ("", "-legacy")
_TRIALS = {
    "loss": Disturbance(kind="loss", probability=0.5),
    "partition": Disturbance(kind="partition"),
}


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """What works here.

    Attributes
    ----------
    variant
        Suffix of the iptables that works, empty or `-legacy`.
    reasons
        Why kinds of disturbance, or `kill`, do not work.
    """

    variant: str
    reasons: dict[str, str]

    def can(self, kind: str) -> bool:
        """Say whether a kind of disturbance can be made."""
        return kind not in self.reasons


def find_abilities(blindness: str = "") -> Abilities:
    """Try every kind of disturbance; each is set where it does no harm, and removed.

    Parameters
    ----------
    blindness
        Why nothing can be done to other pods anyhow, see `Pods.blindness`.
    """
    if blindness:
        return Abilities(variant="", reasons=dict.fromkeys((*KINDS, "kill"), blindness))
    tried = {variant: _failing(variant) for variant in VARIANTS}
    variant = min(VARIANTS, key=lambda one: len(tried[one]))
    reasons = dict(tried[variant])
    try:
        Network().try_queue(Disturbance(kind="delay", latency_s=0.001))
    except Refusal as refusal:
        reasons["delay"] = f"the kernel has no netem ({refusal})"
    return Abilities(variant=variant, reasons=reasons)


def _failing(variant: str) -> dict[str, str]:
    reasons = {}
    for kind, trial in _TRIALS.items():
        try:
            Network(variant=variant).try_rules(trial)
        except Refusal as refusal:
            reasons[kind] = str(refusal)
    return reasons
