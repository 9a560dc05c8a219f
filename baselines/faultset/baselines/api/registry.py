"""The baselines that are installed: what each one is, and how to make it.

A baseline is announced twice: the decorator `baseline` attaches a `BaselineSpec` to its class, and an entry
point in the group `faultset.baselines` names the class, so that it is found without being imported first.
Built-in baselines do exactly what those of other distributions do.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import numpy as np

from faultset.baselines.api.contract import Detector, Diagnoser, Localizer, Need, Ranking, Task, Untrained
from faultset.core.errors import UsageError, translate_missing_extra
from faultset.core.plugins import load_plugin, load_plugins, plugins
from faultset.core.printable import quoted
from faultset.core.suggestions import unknown_name

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

GROUP = "faultset.baselines"
Kind = Literal["named", "method", "own", "rule", "control"]
Speed = Literal["instant", "fast", "slow"]
TELEMETRY_TABLES = ("metrics", "spans", "logs", "events", "objects")
METHOD_OF_TASK = {"detection": "detect", "localization": "localize", "rca": "diagnose"}

_announced: dict[str, BaselineSpec] = {}
_Class = TypeVar("_Class", bound=type)


@dataclass(frozen=True, kw_only=True)
class BaselineSpec:
    """What a person and the evaluator need to know about a baseline before running it."""

    name: str
    """Name in commands and tables."""
    task: Task
    """detection, localization or rca."""
    factory: Callable[..., Detector | Localizer | Diagnoser]
    """What makes it; its docstring cites the source."""
    title: str = ""
    """Name for people, in a few words."""
    paper: str = ""
    """Citation, or a word on why there is none."""
    kind: Kind = "method"
    """named: one of the three in the AIOpsLab paper; method: another published method; own: our variant of a published
    method; rule: plain condition on telemetry; control: ignores the evidence, or looks at one trivial sign of it."""
    tables: tuple[str, ...] = TELEMETRY_TABLES
    """Tables of an episode that it reads; it answers, if less well, when one is missing."""
    needs: frozenset[str] = frozenset()
    """What it is given beyond telemetry: the requests of the clients (`sli`), or the answers of the training episodes
    (`labels`), which also decide what `fit` is given; see `faultset.baselines.api.contract`."""
    stochastic: bool = False
    """Whether the factory takes a `seed`."""
    speed: Speed = "fast"
    """For an episode of six minutes: instant is under 0.3 s of one core, fast under 2 s, slow more."""
    departures: tuple[str, ...] = ()
    """Where it differs from the paper, one sentence each."""
    requires: tuple[str, ...] = ()
    """Tables that it cannot do without. An episode that lacks one of them gets no answer, and counts as `cannot`; with
    none declared, one that lacks all of `tables`."""
    complexity: str = ""
    """Cost of one answer, for instance "O(series · steps)"; empty where it is not known."""
    trigger: str | None = None
    """Of a localizer: the detector that its paper starts it with. It is scored with that alarm too."""
    learns_from_references: bool = False
    """Whether `fit` is also given the healthy references of training episodes with a fault, as views that end there."""
    developed_on: tuple[str, ...] | None = None
    """Data that its authors had seen before the last change to what it answers (`faultset.baselines.api.seen_data`);
    empty where it reads no evidence, None where it is not declared."""
    extra: str = ""
    """Extra of faultset that it belongs to, and is only evaluated with; empty where there is none."""
    reconstruction: bool = False
    """Whether the public text does not define the method completely, so that this is one reading of it."""
    open_settings: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, hash=False)
    """Parameter -> values that the paper allows, the default first. Chosen before any test data were looked at."""
    own_threshold: bool = True
    """Of a detector: False where only its scores count. The evaluation then sets its threshold, from the scores that
    models fitted on other training episodes give to training episodes without a fault."""

    @property
    def variants(self) -> dict[str, dict[str, Any]]:
        """Label -> parameters of every other reading of the paper; each changes one open setting."""
        return {f"{name}={value}": {name: value} for name, values in self.open_settings.items() for value in values[1:]}

    def build(self, *, seed: int = 0, **parameters: Any) -> Detector | Localizer | Diagnoser:
        """Make a baseline; `seed` only reaches those that draw random numbers.

        `get_detector`, `get_localizer` and `get_diagnoser` return a narrower type.
        """
        if self.stochastic:
            parameters["seed"] = seed
        return self.factory(**parameters)


def baseline(
    name: str,
    *,
    task: Task,
    title: str = "",
    paper: str = "",
    kind: Kind = "method",
    tables: Iterable[str] = TELEMETRY_TABLES,
    speed: Speed = "fast",
    needs: Iterable[Need] = (),
    stochastic: bool = False,
    departures: Iterable[str] = (),
    requires: Iterable[str] = (),
    complexity: str = "",
    trigger: str | None = None,
    learns_from_references: bool = False,
    reconstruction: bool = False,
    open_settings: Mapping[str, tuple[Any, ...]] | None = None,
    own_threshold: bool = True,
    developed_on: Iterable[str] | None = None,
    extra: str = "",
) -> Callable[[_Class], _Class]:
    """Announce the decorated class as the baseline `name`; the fields of `BaselineSpec` say what the rest means.

    Name and task are enough to evaluate a method. Fill in the rest before you publish it.

    Raises
    ------
    UsageError
        The name is taken, or the class does not fit its task.
    """

    if isinstance(tables, str):
        raise UsageError(f'baseline "{name}" declares tables {tables!r}; give a sequence, as in ("{tables}",)')

    def announce(cls: _Class) -> _Class:
        spec = BaselineSpec(
            name=name,
            title=title or name,
            task=task,
            paper=paper,
            kind=kind,
            tables=tuple(tables),
            needs=frozenset(needs),
            stochastic=stochastic,
            speed=speed,
            departures=tuple(departures),
            factory=cls,
            requires=tuple(requires),
            complexity=complexity,
            trigger=trigger,
            learns_from_references=learns_from_references,
            reconstruction=reconstruction,
            open_settings=dict(open_settings or {}),
            own_threshold=own_threshold,
            extra=extra,
            developed_on=None if developed_on is None else tuple(developed_on),
        )
        _check(spec)
        for name_of_method in ("fit", METHOD_OF_TASK[task]):
            method = getattr(cls, name_of_method, None)  # a class that lacks one is refused when it is loaded
            # an evaluation recognises by Untrained.fit that nothing is learned
            if method is not None and method is not Untrained.fit:
                setattr(cls, name_of_method, _answering(method))
        for attribute in ("name", "needs", "tables"):
            setattr(cls, attribute, getattr(spec, attribute))
        cls.spec = spec  # type: ignore[attr-defined]
        _announced[name] = spec
        return cls

    return announce


def function_baseline(function: Callable[..., Any], name: str = "") -> BaselineSpec:
    """Return a localizer that asks a function.

    Parameters
    ----------
    function
        Called with an episode and an alarm, UTC nanoseconds; returns `{service: score}`, higher is more suspicious, or
        a `Ranking`.
    name
        Name in tables; by default that of the function.

    Raises
    ------
    UsageError
        It is no function of two arguments, it has no name, or a baseline has that name.
    """
    if not inspect.isfunction(function):
        raise UsageError(f"a method is a function or a class with the decorator baseline, not {quoted(function)}")
    name = name or function.__name__
    if name == "<lambda>":
        raise UsageError('a lambda has no name; give it one, as in evaluate(dataset, {"mine": lambda ...})')
    try:
        inspect.signature(function).bind(None, 0)
    except TypeError:
        raise UsageError(f'the function "{name}" must take two arguments: an episode and an alarm') from None
    if name in _announced or name in plugins(GROUP):
        raise UsageError(f'a baseline is called "{name}"; give your function another name')
    # a class of the function's own module, so that its code is identified and confined as that of a class is
    body = {"__module__": function.__module__, "__doc__": function.__doc__, "function": function, "name": name}
    factory: Any = type("FunctionLocalizer", (_FunctionLocalizer,), body)
    return BaselineSpec(name=name, task="localization", factory=factory, title=name, paper="None; a function")


class _FunctionLocalizer(Untrained):
    name: str = ""
    needs: frozenset[str] = frozenset()
    tables: tuple[str, ...] = TELEMETRY_TABLES
    function: Callable[..., Any]

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        answer = type(self).function(episode, alarm_ns)
        return answer if isinstance(answer, Ranking) else Ranking(scores=answer)


def _answering(method: Callable[..., Any]) -> Callable[..., Any]:
    """Check the alarm of a method, and name the extra that it lacks."""

    @functools.wraps(method)
    def checked(self: Any, episode: Any, *alarm: Any) -> Any:
        for alarm_ns in alarm:
            _check_alarm(alarm_ns)
        with translate_missing_extra():
            return method(self, episode, *alarm)

    return checked


def _check_alarm(alarm_ns: object) -> None:
    if alarm_ns is None:
        raise UsageError("the alarm is missing: the detector stayed silent, or no time was given; give UTC nanoseconds")
    if not isinstance(alarm_ns, int | np.integer):
        raise UsageError(f"an alarm is an integer of UTC nanoseconds, not {quoted(alarm_ns)}")


def list_baselines() -> dict[str, BaselineSpec]:
    """Return every baseline that is installed or announced in this process, by name.

    A plug-in that cannot be loaded, or is no baseline, is left out with a warning; `get_baseline` raises the error.
    """
    load_plugins(GROUP, _registered, announced=_announced)
    return dict(sorted(_announced.items()))


def get_baseline(name: str) -> BaselineSpec:
    """Look a baseline up by name.

    Raises
    ------
    UsageError
        There is no such baseline (the sentence names the nearest), or its plug-in cannot be loaded.
    """
    if name not in _announced and name in plugins(GROUP):
        load_plugin(GROUP, name, kind="baseline", accept=_registered, announced=_announced)
    if name not in _announced:
        raise unknown_name("baseline", name, list_baselines())
    return _announced[name]


def get_detector(name: str, *, seed: int = 0, **parameters: Any) -> Detector:
    """Make the detector of that name.

    Raises
    ------
    UsageError
        There is none of that name, or the baseline is for another task.
    """
    made = _spec_for("detection", name).build(seed=seed, **parameters)
    assert isinstance(made, Detector)
    return made


def get_localizer(name: str, *, seed: int = 0, **parameters: Any) -> Localizer:
    """Make the localizer of that name; errors are those of `get_detector`."""
    made = _spec_for("localization", name).build(seed=seed, **parameters)
    assert isinstance(made, Localizer)
    return made


def get_diagnoser(name: str, *, seed: int = 0, **parameters: Any) -> Diagnoser:
    """Make the diagnoser of that name; errors are those of `get_detector`."""
    made = _spec_for("rca", name).build(seed=seed, **parameters)
    assert isinstance(made, Diagnoser)
    return made


def _spec_for(task: Task, name: str) -> BaselineSpec:
    spec = get_baseline(name)
    if spec.task != task:
        raise UsageError(f'the baseline "{name}" is for {spec.task}, not for {task}; see "faultset list baselines"')
    return spec


def _registered(name: str, loaded: Any) -> BaselineSpec:
    spec = loaded if isinstance(loaded, BaselineSpec) else getattr(loaded, "spec", None)
    if not isinstance(spec, BaselineSpec) or spec.name != name:
        raise UsageError(
            f'it must be the class of the baseline "{name}", but is {loaded!r}; decorate the class with '
            "faultset.baselines.baseline"
        )
    _check(spec)
    _announced[spec.name] = spec
    return spec


def _check(spec: BaselineSpec) -> None:
    method = METHOD_OF_TASK.get(spec.task)
    if method is None:
        raise UsageError(f'baseline "{spec.name}" has the task "{spec.task}"; choose from {get_args(Task)}')
    if isinstance(spec.factory, type) and not hasattr(spec.factory, method):
        raise UsageError(f'baseline "{spec.name}" is for {spec.task} but its class has no method "{method}"')
    for what, values, choices in (
        ("kind", {spec.kind}, get_args(Kind)),
        ("speed", {spec.speed}, get_args(Speed)),
        ("needs", spec.needs, get_args(Need)),
    ):
        unknown = sorted({*values} - {*choices})
        if unknown:
            raise UsageError(
                f'baseline "{spec.name}" declares {what} {", ".join(map(repr, unknown))}; choose from {choices}'
            )
    if spec.task == "rca" and "labels" not in spec.needs:
        raise UsageError(f'baseline "{spec.name}" is for rca and learns from answers; add needs=("labels",)')
    if spec.trigger is not None and spec.task != "localization":
        raise UsageError(f'baseline "{spec.name}" is for {spec.task}; only a localizer has a trigger')
    if not spec.own_threshold and spec.task != "detection":
        raise UsageError(f'baseline "{spec.name}" is for {spec.task}; only a detector has a threshold')
    if spec.learns_from_references and "labels" in spec.needs:
        raise UsageError(
            f'baseline "{spec.name}" needs labels and is given training episodes with a fault as they are; '
            "leave out learns_from_references"
        )
    _check_open_settings(spec)
    owner = _announced.get(spec.name)
    if owner is not None and _origin(owner) != _origin(spec):
        raise UsageError(f'two baselines are called "{spec.name}": {_origin(owner)} and {_origin(spec)}; rename one')


def _check_open_settings(spec: BaselineSpec) -> None:
    if not spec.open_settings:
        return
    parameters = inspect.signature(spec.factory).parameters
    for name, values in spec.open_settings.items():
        default = parameters[name].default if name in parameters else inspect.Parameter.empty
        if not values or values[0] != default:
            raise UsageError(
                f'baseline "{spec.name}" declares the open setting {name}={values!r}; the first value must be the '
                "default of a parameter with that name"
            )


def _origin(spec: BaselineSpec) -> str:
    return f"{spec.factory.__module__}.{getattr(spec.factory, '__qualname__', spec.factory)}"
