"""Which faults a host cannot make."""

from __future__ import annotations

from collections.abc import Iterable

from faultset.collector.faults.registry import FaultSpec
from faultset.collector.platforms.hosts import PlatformHost


def unsupported_faults(host: PlatformHost, faults: Iterable[FaultSpec]) -> dict[str, str]:
    """Return the faults that cannot be made on a host, by name, with the reason."""
    specs = list(faults)
    lacking = host.unsupported_needs({need for spec in specs for need in spec.needs})
    reasons = {spec.name: "; ".join(lacking[need] for need in sorted(spec.needs & lacking.keys())) for spec in specs}
    return {name: reason for name, reason in reasons.items() if reason}
