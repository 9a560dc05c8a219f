"""Faults by name: what each breaks, what its label says, how one sees that it took effect.

A fault is a function `(platform, target, rng) -> parameters` under the `fault` decorator. It only breaks; the
platform's journal undoes. Built-in and third-party faults register alike, through the entry-point group
`faultset.faults`, whose entries are modules.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Literal

import numpy as np

from faultset.collector.platforms.api.platform import Platform
from faultset.collector.spec.app import AppSpec
from faultset.core.suggestions import unknown_name

Need = Literal["loss", "delay", "partition", "kill", "resize", "runtime"]
Parameters = dict[str, Any]
Inject = Callable[[Platform, str, np.random.Generator], Parameters]
Check = Callable[[Platform, str, Mapping[str, Any]], str | None]
SystemLevel = Literal["Hardware", "Operating System", "Virtualization", "Application"]
FaultType = Literal[
    "Misconfiguration",
    "Code Defect",
    "Authentication Issue",
    "Network/Storage Issue",
    "Operation Error",
    "Dependency Problem",
]


@dataclass(frozen=True, kw_only=True)
class FaultSpec:
    """One kind of fault.

    Attributes
    ----------
    name
        Unique, in words joined by hyphens.
    summary
        One sentence for people.
    system_level, fault_type
        The root-cause label in AIOpsLab's vocabulary.
    paper_number
        Row of Table 2 in the AIOpsLab paper; None for faults that are not in it.
    category
        `functional` has a cause that can be repaired, `symptomatic` only a symptom.
    targets
        Gives the services of an application that the fault can be applied to.
    root_cause_kind
        Kind of the object at fault; its name is the target's.
    inject
        Breaks the target and returns the seeded parameters.
    check
        Says what shows, on the object or process itself, that the fault is in effect; None while nothing does.
    repeat_s
        Seconds after which the injection is made again, until the recovery; None when once is enough.
    also_accepted
        Names besides the target that count as right answers.
    needs
        What the platform must be able to do: a disturbance of packets, killing a container's process, resizing a
        running pod, or running the application on programs of ours (`runtime`).
    """

    name: str
    summary: str
    system_level: SystemLevel
    fault_type: FaultType
    paper_number: int | None
    category: Literal["functional", "symptomatic"]
    targets: Callable[[AppSpec], tuple[str, ...]]
    root_cause_kind: str
    inject: Inject
    check: Check
    repeat_s: float | None
    also_accepted: Callable[[AppSpec, str], tuple[str, ...]]
    needs: frozenset[Need]


_faults: dict[str, FaultSpec] = {}


def fault(
    name: str,
    *,
    system_level: SystemLevel,
    fault_type: FaultType,
    targets: Callable[[AppSpec], tuple[str, ...]],
    check: Check,
    paper_number: int | None = None,
    category: Literal["functional", "symptomatic"] = "functional",
    root_cause_kind: str = "Deployment",
    repeat_s: float | None = None,
    also_accepted: Callable[[AppSpec, str], tuple[str, ...]] = lambda app, target: (),
    needs: tuple[Need, ...] = (),
) -> Callable[[Inject], Inject]:
    """Register the decorated function as a fault; see `FaultSpec` for the parameters.

    Raises
    ------
    ValueError
        A fault of that name is registered already by another function.
    """

    def register(inject: Inject) -> Inject:
        other = _faults.get(name)
        if other and other.inject.__module__ != inject.__module__:
            raise ValueError(f"fault {name} is defined in both {other.inject.__module__} and {inject.__module__}")
        _faults[name] = FaultSpec(
            name=name,
            summary=(inspect.getdoc(inject) or "").partition("\n")[0],
            system_level=system_level,
            fault_type=fault_type,
            paper_number=paper_number,
            category=category,
            targets=targets,
            root_cause_kind=root_cause_kind,
            inject=inject,
            check=check,
            repeat_s=repeat_s,
            also_accepted=also_accepted,
            needs=frozenset(needs),
        )
        return inject

    return register


@cache
def _load() -> None:
    for entry in entry_points(group="faultset.faults"):
        entry.load()


def faults() -> dict[str, FaultSpec]:
    """Return all faults by name: those of the paper first, by its numbers, then by name."""
    _load()
    return {spec.name: spec for spec in sorted(_faults.values(), key=lambda f: (f.paper_number or 99, f.name))}


def get_fault(name: str) -> FaultSpec:
    """Return one fault.

    Raises
    ------
    UsageError
        There is no fault of that name; names the nearest.
    """
    known = faults()
    if name not in known:
        raise unknown_name("fault", name, [*known, "noop", "all"])
    return known[name]
