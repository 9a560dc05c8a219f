"""What this node's kernel lets us do, found out by trying it in our own network namespace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from faultset.collector.agent.errors import AgentError
from faultset.collector.agent.impairments import KINDS, NetworkImpairment
from faultset.collector.agent.networks import Network

VARIANTS = ("", "-legacy")
_TRIALS = {
    "loss": NetworkImpairment(kind="loss", probability=0.5),
    "partition": NetworkImpairment(kind="partition"),
}


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """What works here.

    Attributes
    ----------
    variant
        Suffix of the iptables that works, empty or `-legacy`.
    reasons
        Why kinds of impairment, or `kill`, do not work.
    """

    variant: str
    reasons: dict[str, str]

    def can(self, kind: str) -> bool:
        """Say whether a kind of impairment can be made."""
        return kind not in self.reasons

    def without(self, impossible: Mapping[str, str]) -> Abilities:
        """Return the same but for what is impossible for other reasons."""
        return Abilities(variant=self.variant, reasons={**self.reasons, **impossible})


def find_abilities(unavailable_reason: str = "") -> Abilities:
    """Try every kind of impairment; each is set where it does no harm, and removed.

    Parameters
    ----------
    unavailable_reason
        Why nothing can be done to other pods anyhow, see `Pods.unavailable_reason`.
    """
    if unavailable_reason:
        return Abilities(variant="", reasons=dict.fromkeys((*KINDS, "kill"), unavailable_reason))
    tried = {variant: _failing(variant) for variant in VARIANTS}
    variant = min(VARIANTS, key=lambda one: len(tried[one]))
    reasons = dict(tried[variant])
    try:
        Network().try_queue(NetworkImpairment(kind="delay", latency_s=0.001))
    except AgentError as error:
        reasons["delay"] = f"the kernel has no netem ({error})"
    return Abilities(variant=variant, reasons=reasons)


def _failing(variant: str) -> dict[str, str]:
    reasons = {}
    for kind, trial in _TRIALS.items():
        try:
            Network(variant=variant).try_rules(trial)
        except AgentError as error:
            reasons[kind] = str(error)
    return reasons
