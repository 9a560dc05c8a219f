"""Which detector raises the alarm that a localizer was made for."""

from __future__ import annotations

import functools
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faultset.baselines.api.registry import BaselineSpec

_SUFFIXES = ("-trigger", "-detector")


def trigger_of(spec: BaselineSpec) -> str | None:
    """Return the name of a localizer's own detector; None where it has none.

    It is the attribute `trigger` of its class, or an installed detector that is called like the localizer with
    "-trigger" or "-detector" behind.
    """
    if spec.task != "localization" or spec.stochastic:
        return None
    named = getattr(spec.factory, "trigger", None)
    if isinstance(named, str):
        return named
    return next((spec.name + suffix for suffix in _SUFFIXES if spec.name + suffix in _installed()), None)


@functools.cache
def _installed() -> frozenset[str]:
    from faultset.baselines.api.registry import GROUP

    return frozenset(point.name for point in entry_points(group=GROUP))
