"""Which faults can be applied to an application, and which a campaign chooses."""

from __future__ import annotations

from collections.abc import Sequence

from faultset.collector.faults.registry import ALL, NOOP, FaultSpec, faults, get_fault
from faultset.collector.spec.app import AppSpec
from faultset.core.errors import UsageError


def chosen_faults(names: Sequence[str], app: AppSpec) -> list[FaultSpec]:
    """Return the faults that `names` mean for an application; `all` means all that apply to it.

    Raises
    ------
    UsageError
        A name is unknown, or a fault that was named has no target in the application.
    """
    if ALL in names:
        return [spec for spec in faults().values() if not unavailable_reason(spec, app)]
    chosen = [get_fault(name) for name in dict.fromkeys(names) if name != NOOP]
    for spec in chosen:
        if reason := unavailable_reason(spec, app):
            usable = ", ".join(name for name, other in faults().items() if not unavailable_reason(other, app))
            raise UsageError(f"fault {spec.name} {reason}; {app.name} can have {usable}")
    return chosen


def unavailable_reason(spec: FaultSpec, app: AppSpec) -> str:
    """Return why a fault cannot be applied to an application; empty when it can."""
    if app.deployed is not None and "runtime" in spec.needs:
        return f"works on programs of ours only, and somebody else has deployed {app.name}"
    return "" if spec.targets(app) else f"has no possible target in {app.name}"
