"""The list of baselines: what each one is, and how to make it.

A baseline is announced twice: the decorator `baseline` attaches a `BaselineSpec` to its class, and an entry
point in the group `faultset.baselines` names the class, so that it is found without being imported first.
Built-in baselines do exactly what those of other distributions do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, TypeVar, get_args

from faultset.baselines.api.contract import Detector, Diagnoser, Localizer, Need, Task
from faultset.core.errors import UsageError
from faultset.core.suggestions import unknown_name

GROUP = "faultset.baselines"
Kind = Literal["named", "control", "rule", "method"]
Speed = Literal["instant", "fast", "slow"]

_log = logging.getLogger(__name__)
_announced: dict[str, BaselineSpec] = {}
_Class = TypeVar("_Class", bound=type)


@dataclass(frozen=True, kw_only=True)
class BaselineSpec:
    """What a person and the evaluator need to know about a baseline before running it."""

    name: str
    title: str
    task: Task
    paper: str
    """Citation, or a word on why there is none."""
    kind: Kind
    """named: one of the three in the AIOpsLab paper; control: ignores the evidence, or looks at one trivial
    sign of it; rule: plain condition on telemetry; method: another published method or a variant."""
    tables: tuple[str, ...]
    """Tables of an episode that it reads; it answers, if less well, when one is missing."""
    needs: frozenset[str]
    """What it must be told beyond the telemetry: the true onset, the requests of the clients (`sli`), or the
    answers of the training episodes (`labels`)."""
    stochastic: bool
    """Whether the factory takes a `seed`."""
    speed: Speed
    """For an episode of six minutes: instant is under 0.3 s of one core, fast under 2 s, slow more."""
    departures: tuple[str, ...]
    """Where it differs from the paper, one sentence each."""
    factory: Callable[..., Detector | Localizer | Diagnoser]
    complexity: str = ""
    """Cost of one answer, for instance "O(series · steps)"; empty where nobody worked it out."""

    def build(self, *, seed: int = 0, **parameters: Any) -> Detector | Localizer | Diagnoser:
        """Make a baseline; `seed` only reaches those that draw random numbers."""
        if self.stochastic:
            parameters["seed"] = seed
        return self.factory(**parameters)


def baseline(
    name: str,
    *,
    title: str,
    task: Task,
    paper: str,
    kind: Kind,
    tables: Iterable[str],
    speed: Speed,
    needs: Iterable[Need] = (),
    stochastic: bool = False,
    departures: Iterable[str] = (),
    complexity: str = "",
) -> Callable[[_Class], _Class]:
    """Announce the decorated class as the baseline `name`; a name can be taken only once."""

    def announce(cls: _Class) -> _Class:
        spec = BaselineSpec(
            name=name,
            title=title,
            task=task,
            paper=paper,
            kind=kind,
            tables=tuple(tables),
            needs=frozenset(needs),
            stochastic=stochastic,
            speed=speed,
            departures=tuple(departures),
            factory=cls,
            complexity=complexity,
        )
        _check(spec)
        for attribute in ("name", "needs", "tables"):
            setattr(cls, attribute, getattr(spec, attribute))
        cls.spec = spec  # type: ignore[attr-defined]
        _announced[name] = spec
        return cls

    return announce


def baselines() -> dict[str, BaselineSpec]:
    """List every baseline that is installed or announced in this process, by name."""
    for entry in entry_points(group=GROUP):
        if entry.name not in _announced:
            try:
                _load(entry)
            except Exception:
                # One broken distribution must not hide all others; asking for it by name shows the error.
                _log.warning("baseline %s of %s cannot be loaded", entry.name, entry.value, exc_info=True)
    return dict(sorted(_announced.items()))


def get(name: str) -> BaselineSpec:
    """Look a baseline up by name.

    Raises
    ------
    UsageError
        When there is no such baseline; the sentence names the closest one.
    """
    if name not in _announced:
        for entry in entry_points(group=GROUP, name=name):
            _load(entry)
    if name not in _announced:
        raise unknown_name("baseline", name, baselines())
    return _announced[name]


def _load(entry: EntryPoint) -> None:
    loaded = entry.load()
    spec = loaded if isinstance(loaded, BaselineSpec) else getattr(loaded, "spec", None)
    if not isinstance(spec, BaselineSpec) or spec.name != entry.name:
        raise UsageError(
            f'entry point "{entry.name}" in {GROUP} must name the class of the baseline "{entry.name}", but '
            f"{entry.value} is not; decorate it with faultset.baselines.api.registry.baseline"
        )
    _check(spec)
    _announced[spec.name] = spec


def _check(spec: BaselineSpec) -> None:
    method = {"detection": "detect", "localization": "localize", "rca": "diagnose"}.get(spec.task)
    if method is None:
        raise UsageError(f'baseline "{spec.name}" has the task "{spec.task}"; choose from {get_args(Task)}')
    if isinstance(spec.factory, type) and not hasattr(spec.factory, method):
        raise UsageError(f'baseline "{spec.name}" is for {spec.task} but its class has no method "{method}"')
    if spec.task == "rca" and "labels" not in spec.needs:
        raise UsageError(f'baseline "{spec.name}" is for rca and learns from answers; add needs=("labels",)')
    owner = _announced.get(spec.name)
    if owner is not None and _origin(owner) != _origin(spec):
        raise UsageError(f'two baselines are called "{spec.name}": {_origin(owner)} and {_origin(spec)}; rename one')


def _origin(spec: BaselineSpec) -> str:
    return f"{spec.factory.__module__}.{getattr(spec.factory, '__qualname__', spec.factory)}"
