"""Choose baselines by name or group."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from faultset.baselines.api.registry import BaselineSpec, function_baseline, get_baseline, list_baselines
from faultset.core.errors import UsageError, is_installed, needs_extra

GROUPS = ("default", "all", "named", "methods", "rules", "controls", "variants")
"""Group names accepted in place of method names; "variants" are reconstructed methods with other settings."""
STRONGEST = frozenset({
    "baro-change-point", "trace-errors", "deeplog-markov", "nearest-window", "isolation-forest",
    "combined-evidence", "boosted-ranker", "epsilon-diagnosis", "kubernetes-state", "pdiagnose",
    "nearest-signature", "rca-tree", "rca-forest",
})  # fmt: skip
"""The best methods of each task on core-2 that need no extra, no client requests and no location of the alarm."""
_KINDS_BY_GROUP = {"named": ("named",), "methods": ("method", "own"), "rules": ("rule",), "controls": ("control",)}


def choose_baselines(
    methods: Iterable[str | BaselineSpec | type | Callable[..., Any]] | Mapping[str, Callable[..., Any]] = (),
) -> list[BaselineSpec]:
    """Look up methods by name or group; accept specs, registered classes and functions as they are.

    An empty argument means the group "default": the named methods, the controls, `STRONGEST`, and methods from other
    distributions. Groups leave out methods whose extra is not installed.

    Raises
    ------
    UsageError
        A baseline does not exist, a class lacks the decorator `baseline`, or a function has the wrong signature.
    """
    if isinstance(methods, Mapping):
        methods = [function_baseline(function, str(name)) for name, function in methods.items()]
    chosen: dict[str, BaselineSpec] = {}
    items = list(methods) or ["default"]
    for item in items:
        if item == "variants":
            chosen |= {spec.name: spec for method in list_baselines().values() for spec in build_variants(method)}
            chosen = {name: spec for name, spec in chosen.items() if not lacks_extra(spec)}
        elif isinstance(item, str) and item in GROUPS:
            chosen |= {spec.name: spec for spec in list_baselines().values() if _belongs(spec, item)}
            chosen = {name: spec for name, spec in chosen.items() if not lacks_extra(spec)}
        else:
            spec = get_baseline(item) if isinstance(item, str) else _get_spec(item)
            if lacks_extra(spec):
                raise needs_extra(f'"{spec.name}"', spec.extra)
            chosen[spec.name] = spec
    if any(isinstance(item, str) and item in GROUPS for item in items):
        return [chosen[name] for name in sorted(chosen)]
    return list(chosen.values())


def build_variants(spec: BaselineSpec) -> list[BaselineSpec]:
    """Return one method `NAME[SETTING]` per declared alternative to settings that the method's paper leaves open."""
    variants: Mapping[str, Mapping[str, Any]] = getattr(spec, "variants", {})
    return [
        replace(spec, name=f"{spec.name}[{label}]", factory=functools.partial(spec.factory, **parameters))
        for label, parameters in variants.items()
    ]


def _get_spec(method: Any) -> BaselineSpec:
    spec = getattr(method, "spec", method)
    if isinstance(method, type) and not isinstance(spec, BaselineSpec):
        raise UsageError(
            f"{method!r} is not a baseline; pass a name, a function, or a class with the decorator baseline"
        )
    return spec if isinstance(spec, BaselineSpec) else function_baseline(method)


def lacks_extra(spec: BaselineSpec) -> bool:
    """Return whether a baseline's extra is not installed."""
    return bool(spec.extra) and not is_installed(spec.extra)


def count_left_out(chosen: Iterable[str]) -> int:
    """Return the number of baselines that were not chosen."""
    return len(list_baselines().keys() - set(chosen))


def _belongs(spec: BaselineSpec, group: str) -> bool:
    if group == "default":
        built_in = spec.factory.__module__.startswith("faultset.")
        return not spec.extra and (spec.kind in ("named", "control") or spec.name in STRONGEST or not built_in)
    # a pre-trained model needs weights that the user has to fetch
    return spec.extra != "forecasters" and (group == "all" or spec.kind in _KINDS_BY_GROUP[group])
