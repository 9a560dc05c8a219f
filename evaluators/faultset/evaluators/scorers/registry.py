"""The scorers that are installed."""

from __future__ import annotations

import re
from typing import get_args

from faultset.core.errors import UsageError
from faultset.core.plugins import load_plugin, load_plugins
from faultset.evaluators.results.rows import TASKS
from faultset.evaluators.scorers.contract import Episodes, Metric, Unit

GROUP = "faultset.scorers"


def registered_scorers() -> tuple[Metric, ...]:
    """Return every scorer that is installed and keeps the contract, by name; a warning names any other."""
    return tuple(load_plugins(GROUP, _declared).values())


def _declared(name: str, loaded: object) -> Metric:
    return check_declaration(loaded, name)


def scorer_called(name: str) -> Metric:
    """Return one scorer by its name."""
    return load_plugin(GROUP, name, kind="scorer", accept=_declared)


def check_declaration(scorer: object, name: str | None = None) -> Metric:
    """Return the scorer if what it says about itself can be used.

    Parameters
    ----------
    name
        Name of its entry point.

    Raises
    ------
    UsageError
        It is no `Metric` with `compute`, or a field has an unknown value.
    """
    called = name or getattr(scorer, "name", repr(scorer))
    if not isinstance(scorer, Metric) or scorer.compute is None:
        raise UsageError(f'the scorer "{called}" must be a faultset.evaluators.Metric with compute; found {scorer!r}')
    if name is not None and scorer.name != name:
        raise UsageError(f'the entry point "{name}" in {GROUP} names the scorer "{scorer.name}"; use one name for both')
    if re.fullmatch(r"[a-z][a-z0-9_]*", scorer.name) is None:
        raise UsageError(f'"{scorer.name}" is not a name for a scorer; use lower-case letters, digits and underscores')
    for field, value, allowed in (
        ("task", scorer.task, TASKS),
        ("unit", scorer.unit, get_args(Unit)),
        ("better", scorer.better, ("higher", "lower")),
        ("episodes", scorer.episodes, get_args(Episodes)),
    ):
        if value not in allowed:
            choices = ", ".join(repr(one) for one in allowed)
            raise UsageError(f'the scorer "{scorer.name}" has {field}={value!r}; choose from {choices}')
    if not scorer.title or not scorer.meaning:
        raise UsageError(f'the scorer "{scorer.name}" has no title or no meaning; readers need both')
    return scorer
