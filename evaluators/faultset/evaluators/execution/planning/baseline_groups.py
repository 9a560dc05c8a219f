"""Which baselines an evaluation runs: given by name, by group, or as specs and classes."""

from __future__ import annotations

from collections.abc import Iterable

from faultset.baselines.api.registry import BaselineSpec, get_baseline, list_baselines
from faultset.baselines.neural import EXTRA, missing_packages
from faultset.core.errors import UsageError, needs_extra

GROUPS = ("default", "all", "named", "methods", "rules", "controls")
"""What can be given instead of names: all but slow methods, all, or one kind."""
_KINDS = {"named": ("named",), "methods": ("method", "own"), "rules": ("rule",), "controls": ("control",)}


def choose_baselines(wanted: Iterable[str | BaselineSpec | type] = ()) -> list[BaselineSpec]:
    """Look baselines up, given by name or group, as specs or as registered classes.

    Nothing means the group "default": all that are installed except those that belong to an extra, and those that are
    declared slow and are not among the named methods. Other groups leave out what an extra is missing for.

    Raises
    ------
    UsageError
        There is no such baseline, or a class is not registered with `baseline`.
    """
    chosen: dict[str, BaselineSpec] = {}
    items = list(wanted) or ["default"]
    for item in items:
        if isinstance(item, str) and item in GROUPS:
            chosen |= {spec.name: spec for spec in list_baselines().values() if _belongs(spec, item)}
            chosen = {name: spec for name, spec in chosen.items() if not lacks_extra(spec)}
        else:
            spec = get_baseline(item) if isinstance(item, str) else getattr(item, "spec", item)
            if not isinstance(spec, BaselineSpec):
                raise UsageError(f"{item!r} is no baseline; give a name, or a class with the decorator baseline")
            if lacks_extra(spec):
                raise needs_extra(f'"{spec.name}"', spec.extra)
            chosen[spec.name] = spec
    if any(isinstance(item, str) and item in GROUPS for item in items):
        return [chosen[name] for name in sorted(chosen)]
    return list(chosen.values())


def lacks_extra(spec: BaselineSpec) -> bool:
    """Whether a baseline cannot be fitted because its extra is not installed."""
    return spec.extra == EXTRA and bool(missing_packages())


def slow_left_out(chosen: Iterable[str]) -> list[str]:
    """Name the slow baselines, and those that are trained for long, that are not among the chosen names."""
    held = set(chosen)
    slow = [name for name, spec in list_baselines().items() if spec.speed == "slow" or spec.extra]
    return [name for name in slow if name not in held]


def _belongs(spec: BaselineSpec, group: str) -> bool:
    if group == "default":
        return not spec.extra and (spec.speed != "slow" or spec.kind in ("named", "control"))
    return group == "all" or spec.kind in _KINDS[group]
