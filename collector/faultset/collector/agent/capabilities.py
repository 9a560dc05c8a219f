"""Test which impairments this node's kernel supports, in the agent's own network namespace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from faultset.collector.agent.impairments import KINDS, NetworkImpairment
from faultset.collector.agent.networks import Network
from faultset.collector.agent.protocol import AgentError

VARIANTS = ("", "-legacy")
_TRIAL_IMPAIRMENTS = {
    "loss": NetworkImpairment(kind="loss", probability=0.5),
    "partition": NetworkImpairment(kind="partition"),
}


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """The impairments that the agent supports on this node.

    Attributes
    ----------
    variant
        Suffix of the iptables command that works, empty or `-legacy`.
    reasons
        Why an impairment kind or `kill` does not work; only failing ones have an entry.
    """

    variant: str
    reasons: dict[str, str]

    def can(self, kind: str) -> bool:
        """Return whether an impairment kind, or `kill`, works."""
        return kind not in self.reasons

    def without(self, unsupported: Mapping[str, str]) -> Abilities:
        """Return the abilities that remain without the keys of `unsupported`, whose values are the reasons."""
        return Abilities(variant=self.variant, reasons={**self.reasons, **unsupported})


def find_abilities(unavailable_reason: str = "") -> Abilities:
    """Test every impairment kind by setting it where it is harmless and removing it.

    Parameters
    ----------
    unavailable_reason
        Why no pod can be impaired at all (see `Pods.unavailable_reason`); empty to run the tests.
    """
    if unavailable_reason:
        return Abilities(variant="", reasons=dict.fromkeys((*KINDS, "kill"), unavailable_reason))
    failures = {variant: _try_rules(variant) for variant in VARIANTS}
    variant = min(VARIANTS, key=lambda suffix: len(failures[suffix]))
    reasons = dict(failures[variant])
    try:
        Network().try_queue(NetworkImpairment(kind="delay", latency_s=0.001))
    except AgentError as error:
        reasons["delay"] = f"the kernel does not support netem ({error})"
    return Abilities(variant=variant, reasons=reasons)


def _try_rules(variant: str) -> dict[str, str]:
    reasons = {}
    for kind, trial in _TRIAL_IMPAIRMENTS.items():
        try:
            Network(variant=variant).try_rules(trial)
        except AgentError as error:
            reasons[kind] = str(error)
    return reasons
