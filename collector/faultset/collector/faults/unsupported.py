"""Faults that a host cannot inject."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from faultset.collector.faults.registry import FaultSpec


class CapabilityCheck(Protocol):
    """A host, or the hosts of workers, that lists missing capabilities."""

    def unsupported_needs(self, needs: Collection[str]) -> dict[str, str]:
        """Return the missing capabilities, each with the reason."""
        ...


def unsupported_faults(host: CapabilityCheck, faults: Iterable[FaultSpec]) -> dict[str, str]:
    """Return the faults that a host cannot inject, by name, with the reason."""
    specs = list(faults)
    missing = host.unsupported_needs({need for spec in specs for need in spec.needs})
    reasons = {spec.name: "; ".join(missing[need] for need in sorted(spec.needs & missing.keys())) for spec in specs}
    return {name: reason for name, reason in reasons.items() if reason}
