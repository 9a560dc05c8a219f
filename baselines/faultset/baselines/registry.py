"""Registry of the installed baselines.

The decorator `baseline` attaches a `BaselineSpec` to a class. An entry point in the group `faultset.baselines` names
the class, so that it can be looked up before it is imported. Built-in baselines use the same mechanism as plug-ins.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import numpy as np

from faultset.baselines.contract import Detector, Diagnoser, Localizer, Need, Ranking, Task, TrainingFreeBaseline
from faultset.core.errors import UsageError, translate_missing_extra, unknown_name
from faultset.core.plugins import load_plugin, load_plugins, plugins
from faultset.core.printable import quoted

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView


GROUP = "faultset.baselines"
Kind = Literal["named", "method", "own", "rule", "control"]
Speed = Literal["instant", "fast", "slow"]
TELEMETRY_TABLES = ("metrics", "spans", "logs", "events", "objects")
METHOD_OF_TASK = {"detection": "detect", "localization": "localize", "rca": "diagnose"}

# Names of data on which methods were developed. Data count as seen if the authors inspected their episodes, or the
# method's scores on them, before the last change that affects its answers.
OWN_CAMPAIGNS = "campaigns of this project with the hotel application on the embedded platform"
SAMPLE = "datasets/sample"
NEZHA = "Nezha, Train Ticket, 2023-01-29"
PETSHOP = "PetShop, public issues"
NEZHA_SHOP = "Nezha, Online Boutique, 2022-08-22"
RCAEVAL_CASE = "RCAEval, one case of RE2-OB"
OPENSTACK = "OpenStack failure dataset, 45 tests"
OWN_CAMPAIGNS_ALL_APPS = "campaigns of this project with all four applications on the embedded platform"

OWN = (OWN_CAMPAIGNS, SAMPLE)
OWN_AND_PUBLISHED = (*OWN, NEZHA, PETSHOP)
"""For localizers whose preprocessing was last changed after they were scored on these data."""
NOTHING: tuple[str, ...] = ()
"""For methods that read no telemetry."""

_announced: dict[str, BaselineSpec] = {}
_Class = TypeVar("_Class", bound=type)


@dataclass(frozen=True, kw_only=True)
class BaselineSpec:
    """Description of a baseline for people and for the evaluation."""

    name: str
    """Name in commands and tables."""
    task: Task
    """detection, localization or rca."""
    factory: Callable[..., Detector | Localizer | Diagnoser]
    """Builds the baseline; its docstring cites the source."""
    title: str = ""
    """Short name for people."""
    paper: str = ""
    """Citation, or the reason why there is none."""
    kind: Kind = "method"
    """named: one of the three methods in the AIOpsLab paper; method: another published method; own: this project's
    method, or its variant of a published one; rule: simple condition on telemetry; control: ignores the telemetry or
    uses one trivial signal."""
    tables: tuple[str, ...] = TELEMETRY_TABLES
    """Tables that it reads. It must still answer when one of them is missing."""
    needs: frozenset[str] = frozenset()
    """Inputs beyond telemetry: the clients' requests (`sli`), labels of training episodes (`labels`) or the location
    of the alarm (`alarm_location`); see `faultset.baselines.contract`."""
    stochastic: bool = False
    """Whether the factory takes a `seed`."""
    speed: Speed = "fast"
    """Time on one core for a six-minute episode: instant below 0.3 s, fast below 2 s, slow above."""
    departures: tuple[str, ...] = ()
    """Differences from the paper, one sentence each."""
    requires: tuple[str, ...] = ()
    """Tables without which it cannot answer. An episode that lacks one of them counts as `cannot`. If this is empty,
    only episodes that lack all of `tables` count as `cannot`."""
    complexity: str = ""
    """Cost of one answer, for instance "O(series · steps)"; empty if unknown."""
    own_detector: str | None = None
    """For a localizer, the detector that its paper uses. The localizer is also scored with that detector's alarm."""
    learns_from_references: bool = False
    """Whether `fit` also receives training episodes with a fault, as views cut off at the end of the reference."""
    developed_on: tuple[str, ...] | None = None
    """Data that its authors used in development (`faultset.baselines.registry`); None if not declared."""
    extra: str = ""
    """Extra of faultset that the baseline requires; empty if none."""
    reconstruction: bool = False
    """Whether the public text leaves parts of the method undefined, so that this is one interpretation of it."""
    open_settings: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, hash=False)
    """Parameter -> values that the paper allows, the default first. They were declared before the method was tested."""
    own_threshold: bool = True
    """For a detector, whether it sets a threshold. Otherwise the evaluation sets one: models fitted on other training
    episodes score healthy training episodes, and these scores give the threshold."""

    @property
    def variants(self) -> dict[str, dict[str, Any]]:
        """Label -> parameters of each alternative interpretation of the paper; each changes one open setting."""
        return {f"{name}={value}": {name: value} for name, values in self.open_settings.items() for value in values[1:]}

    def build(self, *, seed: int = 0, **parameters: Any) -> Detector | Localizer | Diagnoser:
        """Build the baseline; `seed` is used by stochastic baselines only.

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
    own_detector: str | None = None,
    learns_from_references: bool = False,
    reconstruction: bool = False,
    open_settings: Mapping[str, tuple[Any, ...]] | None = None,
    own_threshold: bool = True,
    developed_on: Iterable[str] | None = None,
    extra: str = "",
) -> Callable[[_Class], _Class]:
    """Register the decorated class as the baseline `name`.

    Name and task are enough to evaluate a method. Fill in the other fields of `BaselineSpec` before you publish it.

    Raises
    ------
    UsageError
        The name is taken, the class does not fit its task, or a field has an invalid value.
    """
    fields: dict[str, Any] = locals() | {
        "title": title or name,
        "tables": tuple(tables),
        "needs": frozenset(needs),
        "departures": tuple(departures),
        "requires": tuple(requires),
        "open_settings": dict(open_settings or {}),
        "developed_on": None if developed_on is None else tuple(developed_on),
    }
    if isinstance(tables, str):
        raise UsageError(f'baseline "{name}" declares tables {tables!r}; write a sequence, as in ("{tables}",)')

    def register(cls: _Class) -> _Class:
        spec = BaselineSpec(factory=cls, **fields)
        _check_spec(spec)
        for method_name in ("fit", METHOD_OF_TASK[task]):
            method = getattr(cls, method_name, None)  # checked when the class is loaded
            # The evaluation skips training if the method is TrainingFreeBaseline.fit itself.
            if method is not None and method is not TrainingFreeBaseline.fit:
                setattr(cls, method_name, _check_calls(method))
        for attribute in ("name", "needs", "tables"):
            setattr(cls, attribute, getattr(spec, attribute))
        cls.spec = spec  # type: ignore[attr-defined]
        _announced[name] = spec
        return cls

    return register


detector = functools.partial(baseline, task="detection", tables=("metrics",), speed="instant", developed_on=OWN)
"""`baseline` with the usual fields of built-in detectors."""
localizer = functools.partial(
    baseline, task="localization", tables=("metrics",), speed="instant", developed_on=OWN_AND_PUBLISHED
)
"""`baseline` with the usual fields of built-in localizers."""


def function_baseline(function: Callable[..., Any], name: str = "") -> BaselineSpec:
    """Return the specification of a localizer that calls a function.

    Parameters
    ----------
    function
        Takes an episode and an alarm in UTC nanoseconds. Returns a `Ranking`, or `{service: score}` with higher scores
        for more suspicious services.
    name
        Name in tables; the function's name by default.

    Raises
    ------
    UsageError
        `function` is not a function, does not take two arguments, is a lambda without `name`, or has the name of a
        baseline.
    """
    if not inspect.isfunction(function):
        raise UsageError(
            f"a method must be a function or a class with the decorator baseline, got {quoted(function)}; "
            "see docs/developing/baseline.md"
        )
    name = name or function.__name__
    if name == "<lambda>":
        raise UsageError('a lambda has no name; name it, as in evaluate(dataset, {"mine": lambda ...})')
    signature = inspect.signature(function)
    try:
        signature.bind(None, 0)
    except TypeError:
        raise UsageError(
            f'the function "{name}" must take two arguments, an episode and an alarm, but its signature is {signature}'
        ) from None
    if name in _announced or name in plugins(GROUP):
        raise UsageError(f'the name "{name}" belongs to a baseline; give your function another name')
    # With a class in the function's module, hashing and the sandbox treat it like any other method.
    body = {"__module__": function.__module__, "__doc__": function.__doc__, "function": function, "name": name}
    factory: Any = type("FunctionLocalizer", (_FunctionLocalizer,), body)
    return BaselineSpec(name=name, task="localization", factory=factory, title=name, paper="None; a function")


class _FunctionLocalizer(TrainingFreeBaseline):
    name: str = ""
    needs: frozenset[str] = frozenset()
    tables: tuple[str, ...] = TELEMETRY_TABLES
    function: Callable[..., Any]

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        answer = type(self).function(episode, alarm_ns)
        return answer if isinstance(answer, Ranking) else Ranking(scores=answer)


def _check_calls(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method to check its alarm argument and to name a missing extra."""

    @functools.wraps(method)
    def call_method(self: Any, episode: Any, *alarm: Any) -> Any:
        for alarm_ns in alarm:
            _check_alarm(alarm_ns)
        with translate_missing_extra():
            return method(self, episode, *alarm)

    return call_method


def _check_alarm(alarm_ns: object) -> None:
    if alarm_ns is None:
        raise UsageError("the alarm is None because the detector raised none; pass a time in UTC nanoseconds")
    if not isinstance(alarm_ns, int | np.integer):
        raise UsageError(f"an alarm must be an integer of UTC nanoseconds, got {quoted(alarm_ns)}")


def list_baselines() -> dict[str, BaselineSpec]:
    """Return all baselines that are installed or registered in this process, by name.

    Plug-ins that cannot be loaded are skipped with a warning; `get_baseline` raises the error.
    """
    load_plugins(GROUP, _register, registry=_announced)
    return dict(sorted(_announced.items()))


def get_baseline(name: str) -> BaselineSpec:
    """Return a baseline by name.

    Raises
    ------
    UsageError
        The name is unknown (the message suggests the nearest), or its plug-in cannot be loaded.
    """
    if name not in _announced and name in plugins(GROUP):
        load_plugin(GROUP, name, kind="baseline", accept=_register, registry=_announced)
    if name not in _announced:
        raise unknown_name("baseline", name, list_baselines())
    return _announced[name]


def get_detector(name: str, *, seed: int = 0, **parameters: Any) -> Detector:
    """Build a detector by name.

    Raises
    ------
    UsageError
        The name is unknown, or the baseline is for another task.
    """
    detector = _get_spec_for("detection", name).build(seed=seed, **parameters)
    assert isinstance(detector, Detector)
    return detector


def get_localizer(name: str, *, seed: int = 0, **parameters: Any) -> Localizer:
    """Build a localizer by name; raises the errors of `get_detector`."""
    localizer = _get_spec_for("localization", name).build(seed=seed, **parameters)
    assert isinstance(localizer, Localizer)
    return localizer


def get_diagnoser(name: str, *, seed: int = 0, **parameters: Any) -> Diagnoser:
    """Build a diagnoser by name; raises the errors of `get_detector`."""
    diagnoser = _get_spec_for("rca", name).build(seed=seed, **parameters)
    assert isinstance(diagnoser, Diagnoser)
    return diagnoser


def _get_spec_for(task: Task, name: str) -> BaselineSpec:
    spec = get_baseline(name)
    if spec.task != task:
        raise UsageError(f'the baseline "{name}" is for {spec.task}, not for {task}; see "faultset list baselines"')
    return spec


def _register(name: str, loaded: Any) -> BaselineSpec:
    spec = loaded if isinstance(loaded, BaselineSpec) else getattr(loaded, "spec", None)
    if not isinstance(spec, BaselineSpec) or spec.name != name:
        raise UsageError(
            f'it must be the class of the baseline "{name}", got {loaded!r}; decorate the class with '
            "faultset.baselines.baseline"
        )
    _check_spec(spec)
    _announced[spec.name] = spec
    return spec


def _check_spec(spec: BaselineSpec) -> None:
    method = METHOD_OF_TASK.get(spec.task)
    if method is None:
        raise UsageError(f'baseline "{spec.name}" has the task "{spec.task}"; choose from {get_args(Task)}')
    if isinstance(spec.factory, type) and not hasattr(spec.factory, method):
        raise UsageError(f'baseline "{spec.name}" must have the method "{method}" of a baseline for {spec.task}')
    for field_name, values, choices in (
        ("kind", {spec.kind}, get_args(Kind)),
        ("speed", {spec.speed}, get_args(Speed)),
        ("needs", spec.needs, get_args(Need)),
    ):
        unknown = sorted({*values} - {*choices})
        if unknown:
            raise UsageError(
                f'baseline "{spec.name}" declares {field_name} {", ".join(map(repr, unknown))}; choose from {choices}'
            )
    if spec.task == "rca" and "labels" not in spec.needs:
        raise UsageError(f'baseline "{spec.name}" is for rca, which needs labels; add needs=("labels",)')
    if spec.own_detector is not None and spec.task != "localization":
        raise UsageError(
            f'baseline "{spec.name}" must not declare own_detector, which is for localization; its task is {spec.task}'
        )
    if not spec.own_threshold and spec.task != "detection":
        raise UsageError(
            f'baseline "{spec.name}" must not declare own_threshold, which only detection has; its task is {spec.task}'
        )
    if spec.learns_from_references and "labels" in spec.needs:
        raise UsageError(
            f'baseline "{spec.name}" needs labels and so receives complete training episodes; '
            "remove learns_from_references"
        )
    _check_open_settings(spec)
    owner = _announced.get(spec.name)
    if owner is not None and _name_origin(owner) != _name_origin(spec):
        raise UsageError(
            f'two baselines are called "{spec.name}": {_name_origin(owner)} and {_name_origin(spec)}; rename one'
        )


def _check_open_settings(spec: BaselineSpec) -> None:
    if not spec.open_settings:
        return
    parameters = inspect.signature(spec.factory).parameters
    for name, values in spec.open_settings.items():
        default = parameters[name].default if name in parameters else inspect.Parameter.empty
        if not values or values[0] != default:
            raise UsageError(
                f'the first value of the open setting {name} of baseline "{spec.name}" must be the default of the '
                f"parameter with that name, got {values!r}"
            )


def _name_origin(spec: BaselineSpec) -> str:
    return f"{spec.factory.__module__}.{getattr(spec.factory, '__qualname__', spec.factory)}"
