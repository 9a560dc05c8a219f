"""Checks of what a baseline declares when it is registered."""

from __future__ import annotations

from faultset.baselines.api.contract import Detector, Diagnoser, Localizer
from faultset.baselines.testing.trial import BaselineTrial
from faultset.datasets.format.schemas import TABLES

_SHAPES: dict[str, type] = {"detection": Detector, "localization": Localizer, "rca": Diagnoser}


def check_registration(trial: BaselineTrial) -> None:
    """The registration is complete and the instance agrees with it."""
    spec = trial.spec
    built = spec.build()
    rules = {
        f"an instance is a {_SHAPES[spec.task].__name__}": isinstance(built, _SHAPES[spec.task]),
        "its class has a docstring": bool((spec.factory.__doc__ or "").strip()),
        "title and paper are not empty": bool(spec.title and spec.paper),
        "complexity is empty or begins with O(": not spec.complexity or spec.complexity.startswith("O("),
        f"tables are among {sorted(TABLES)}": set(spec.tables) <= TABLES.keys(),
        "required tables are among those that it reads": set(spec.requires) <= set(spec.tables),
        'requests is read exactly with needs=("sli",)': ("sli" in spec.needs) == ("requests" in spec.tables),
        "departures are sentences": all(sentence.endswith(".") for sentence in spec.departures),
        "name, needs and tables of an instance are those of the registration": (built.name, built.needs, built.tables)
        == (spec.name, spec.needs, spec.tables),
    }
    for rule, kept in rules.items():
        assert kept, f"{spec.name}: it must hold that {rule}"


def check_seed(trial: BaselineTrial) -> None:
    """A stochastic baseline keeps its seed."""
    made = trial.spec.build(seed=7)
    if trial.spec.stochastic:
        found = getattr(made, "seed", None)
        assert found == 7, f'{trial.spec.name}: built with seed 7, the attribute "seed" is {found}'
