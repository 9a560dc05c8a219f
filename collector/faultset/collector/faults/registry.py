"""Definition and registry of faults.

A fault is a function `(platform, target, rng) -> parameters` under the `fault` decorator. It only injects the
fault; the platform's journal undoes it. Built-in and third-party faults register in the same way, through the
entry-point group `faultset.faults`: an entry point has the name of the fault, and its value is the module that
defines it.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np

from faultset.collector.platforms.base import Capability, Platform
from faultset.collector.platforms.impairments import Course, Schedule
from faultset.collector.spec.app import AppSpec
from faultset.core.errors import UsageError, unknown_name
from faultset.core.plugins import load_plugins, plugins

GROUP = "faultset.faults"
NOOP = "noop"
ALL = "all"

Parameters = dict[str, Any]
Inject = Callable[..., Parameters]
Observe = Callable[[Platform, str], Any]
Check = Callable[[Platform, str, Mapping[str, Any], Any], str | None]
SystemLevel = Literal["Hardware", "Operating System", "Virtualization", "Application"]
FaultType = Literal[
    "Misconfiguration",
    "Code Defect",
    "Authentication Issue",
    "Network/Storage Issue",
    "Operation Error",
    "Dependency Problem",
]
Category = Literal["functional", "symptomatic"]
Sight = Literal["state", "events"]


class FaultyObject(NamedTuple):
    """The object that is the root cause of an episode."""

    kind: str
    name: str


@dataclass(frozen=True, kw_only=True)
class FaultSpec:
    """One kind of fault."""

    name: str
    """Unique, in words joined by hyphens."""
    inject: Inject
    """`inject(platform, target, rng)` breaks the target and returns the seeded parameters."""
    system_level: SystemLevel
    """Level of the root-cause label in AIOpsLab's vocabulary."""
    fault_type: FaultType
    """Type of the root-cause label in AIOpsLab's vocabulary."""
    targets: Callable[[AppSpec], tuple[str, ...]]
    """Returns the services of an application that the fault can be applied to."""
    check: Check
    """`check(platform, target, parameters, before)` returns a sentence with the proof, from the object or process
    itself, that the fault is in effect; None without proof.
    """
    observe: Observe | None = None
    """`observe(platform, target)` returns the state before the first injection, which `check` gets as `before`. Checks
    of counters and of container exits need it; without it `before` is None.
    """
    check_sees: Sight = "state"
    """`state` if `check` returns None once the fault is gone. `events` if it detects events since `observe`, such as a
    killed container; then a new `observe` is needed to see whether they continue.
    """
    paper_number: int | None = None
    """Row of Table 2 in the AIOpsLab paper; None for faults that are not in it."""
    category: Category = "functional"
    """`functional` if there is a cause to repair, `symptomatic` if there is only a symptom."""
    root_cause_kind: str = "Deployment"
    """Kind of the object at fault if it is named like the target."""
    root_cause: Callable[[AppSpec, str], FaultyObject] | None = None
    """`root_cause(app, target)` returns the object at fault if it has another name; otherwise None."""
    at_one_pod: bool = False
    """Whether only one pod of the target is at fault; the parameter `pod` has its name."""
    repeat_s: float | None = None
    """Seconds until the injection is repeated, up to the recovery; None for a single injection."""
    also_accepted: Callable[[AppSpec, str], tuple[str, ...]] = lambda app, target: ()
    """Further names that count as correct answers."""
    schedules: tuple[Schedule, ...] = ()
    """Supported schedules besides `constant`. A fault with schedules takes a further argument `course`, its intensity
    over time or None for the default, and returns the course among its parameters.
    """
    intensity: str = ""
    """Range of the drawn strength, in a few words; empty if the strength is fixed."""
    gray: bool = False
    """Whether the target keeps running while clients suffer: no pod of the target is replaced, stopped, restarted or
    cut off.
    """
    dormant_reason: str = ""
    """Why clients do not notice this fault alone, as a clause; empty if they do."""
    needs: frozenset[Capability] = frozenset()
    """Capabilities that the platform must have, in any collection; see `Capability`."""
    summary: str = ""
    """One sentence for users; by default the first line of the docstring of `inject`."""

    def __post_init__(self) -> None:
        """Raise ValueError if a value is not permitted, or a function has the wrong arguments."""
        object.__setattr__(self, "needs", frozenset(self.needs))
        summary = self.summary or (inspect.getdoc(self.inject) or "").partition("\n")[0]
        object.__setattr__(self, "summary", summary)
        for field, values, permitted in (
            ("system_level", (self.system_level,), SystemLevel),
            ("fault_type", (self.fault_type,), FaultType),
            ("category", (self.category,), Category),
            ("check_sees", (self.check_sees,), Sight),
            ("needs", self.needs, Capability),
            ("schedules", self.schedules, Schedule),
        ):
            for value in values:
                if value not in get_args(permitted):
                    allowed = ", ".join(get_args(permitted))
                    raise ValueError(f'fault {self.name} has {field} "{value}"; use {allowed}')
        if self.check_sees == "events" and self.observe is None:
            raise ValueError(f"fault {self.name} has a check that sees events; also declare observe")
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", self.name) or self.name in (NOOP, ALL):
            raise ValueError(f'a fault cannot be called "{self.name}"; use lower-case words joined by hyphens')
        for field, function, arguments in (
            ("check", self.check, "platform, target, parameters, before"),
            ("observe", self.observe, "platform, target"),
            ("root_cause", self.root_cause, "app, target"),
            ("function", self.inject if self.schedules else None, "platform, target, rng, course"),
        ):
            if function is not None:
                _require_arguments(self.name, field, function, arguments)

    def object_at_fault(self, app: AppSpec, target: str) -> FaultyObject:
        return self.root_cause(app, target) if self.root_cause else FaultyObject(self.root_cause_kind, target)

    @property
    def ends_with_pods(self) -> bool:
        """Whether the fault is in running pods, so that new pods of the target do not have it."""
        return self.root_cause_kind == "Pod" or self.at_one_pod

    def accepted_names(self, app: AppSpec, target: str) -> tuple[str, ...]:
        """Return the names accepted as the root cause of an episode, the target first."""
        names = (target, self.object_at_fault(app, target).name, *self.also_accepted(app, target))
        return tuple(dict.fromkeys(names))

    def inject_with(
        self, platform: Platform, target: str, rng: np.random.Generator, course: Course | None
    ) -> Parameters:
        """Inject the fault, with a course if there is one; return the parameters."""
        arguments = {} if course is None or not self.schedules else {"course": course}
        return dict(self.inject(platform, target, rng, **arguments))

    def follows(self, schedule: Schedule) -> bool:
        return schedule == "constant" or schedule in self.schedules

    def state_before(self, platform: Platform, target: str) -> Any:
        """Return the argument `before` of `check` for an injection now."""
        return self.observe(platform, target) if self.observe else None

    def state_from_now(self, platform: Platform, target: str, before: Any) -> Any:
        """Return the new `before` for `check`; past events no longer count."""
        return self.state_before(platform, target) if self.check_sees == "events" else before


_faults: dict[str, FaultSpec] = {}


def fault(name: str, **fields: Any) -> Callable[[Inject], Inject]:
    """Register the decorated function as a fault; `fields` are fields of `FaultSpec`.

    Raises ValueError if the declaration is invalid, or another function defines a fault of that name.
    """

    def register(inject: Inject) -> Inject:
        spec = FaultSpec(name=name, inject=inject, **fields)
        other = _faults.get(name)
        if other and _location(other.inject) != _location(inject):
            raise ValueError(f"fault {name} is defined both in {_location(other.inject)} and in {_location(inject)}")
        _faults[name] = spec
        return inject

    return register


def _location(inject: Inject) -> str:
    """Return where a function is defined; a reload does not change it."""
    code = getattr(inject, "__code__", None)
    line = f", line {code.co_firstlineno}" if code else ""
    return f"{inject.__module__}.{getattr(inject, '__qualname__', inject)}{line}"


def _require_arguments(name: str, field: str, function: Callable[..., Any], arguments: str) -> None:
    try:
        inspect.signature(function).bind(*arguments.split(", "))
    except TypeError:
        raise ValueError(f"the {field} of fault {name} must take the arguments ({arguments})") from None


def _get_spec(name: str, plugin: Any) -> FaultSpec:
    spec = _faults.get(name)
    module = plugin.__name__ if isinstance(plugin, ModuleType) else None
    if spec is None or spec.inject.__module__ != module:
        raise UsageError(
            f"it must be the module that defines the fault {name}; correct the value or the name of the entry point"
        )
    return spec


@cache
def _load() -> None:
    load_plugins(GROUP, _get_spec, registry=_faults)


def faults() -> dict[str, FaultSpec]:
    """Return all faults by name: first the faults of the AIOpsLab paper by number, then the others by name.

    Plug-ins that cannot be loaded are skipped with a warning.
    """
    _load()
    return {spec.name: spec for spec in sorted(_faults.values(), key=lambda f: (f.paper_number or 99, f.name))}


def get_fault(name: str) -> FaultSpec:
    """Return one fault; raise UsageError if no fault has that name, or its plug-in cannot be loaded."""
    registered = faults()
    if name in registered:
        return registered[name]
    available = plugins(GROUP)
    if name in available:
        return available[name].load(_get_spec, registry=_faults)
    raise unknown_name("fault", name, [*registered, NOOP, ALL])


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


def draw_log_uniform(rng: np.random.Generator, minimum: float, maximum: float, *, digits: int = 3) -> float:
    """Return a number between two positive ones, uniform on a logarithmic scale."""
    return round(math.exp(rng.uniform(math.log(minimum), math.log(maximum))), digits)


def percent_between(shares: Iterable[float]) -> str:
    """Return the range of shares as text.

    >>> percent_between((0.15, 0.8))
    '15 to 80 %'
    """
    shares = tuple(shares)
    return f"{100 * min(shares):g} to {100 * max(shares):g} %"


def either(choices: Iterable[object]) -> str:
    """Join alternatives with commas and `or`.

    >>> either(["10", "25", "50 %"])
    '10, 25 or 50 %'
    """
    *first, last = map(str, choices)
    return f"{', '.join(first)} or {last}" if first else last
