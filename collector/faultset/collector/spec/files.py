"""Specs as YAML: reading and writing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml
from pydantic import ValidationError

from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.rules.consistency import problems
from faultset.collector.spec.steps import StepTypes, first_problem
from faultset.core.errors import UsageError
from faultset.core.reading.yaml_documents import parse_yaml


def read_mapping(text: str, source: str) -> dict[str, Any]:
    """Return the mapping that a YAML text holds; raise UsageError when it holds none."""
    value = parse_yaml(text, source)
    if not isinstance(value, dict):
        raise UsageError(f"{source} is not an application spec: a mapping is wanted, found {type(value).__name__}")
    return value


def parse(
    text: str,
    source: str,
    *,
    steps: StepTypes,
    code: str | None = None,
    workload_of: Callable[[str], dict[str, Any]] | None = None,
) -> AppSpec:
    """Read a spec.

    Parameters
    ----------
    text
        YAML.
    source
        Where the text is from, for the message.
    steps
        The kinds of steps that operations may have.
    code
        Where the application's own code is, for a spec that does not say it.
    workload_of
        Returns requests and mixes of another application, for a spec whose field `workload_of` names one.

    Raises
    ------
    UsageError
        The spec is wrong; the sentence has the line, the field and the reason of the first thing that is.
    """
    value = read_mapping(text, source)
    if workload_of is not None and isinstance(value.get("workload_of"), str):
        value = {**workload_of(value.pop("workload_of")), **value}
    if code is not None:
        value.setdefault("code", code)
    try:
        app = AppSpec.model_validate(value, context={"steps": steps})
    except ValidationError as error:
        raise wrong_spec(text, source, *first_problem(error), more=error.error_count() - 1) from None
    for problem in problems(app):
        raise wrong_spec(text, source, *problem)
    return app


def wrong_spec(text: str, source: str, place: tuple[str | int, ...], reason: str, *, more: int = 0) -> UsageError:
    """Return the error for something in a spec that is wrong, to be raised by the caller.

    Parameters
    ----------
    place
        Keys and indices that lead to it.
    more
        How many other things are wrong.
    """
    field = ".".join(str(part) for part in place) or "the whole"
    others = f" ({more} more)" if more else ""
    return UsageError(f"{source}, line {_line(text, place)}, is wrong at {field}: {reason}{others}; correct the spec")


def _line(text: str, place: tuple[str | int, ...]) -> int:
    """Return the line on which a place of a YAML text begins, or the innermost part of it that is there."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    line = 0
    for part in place:
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == str(part)), None)
            if found is None:
                break
            key, node = found
            line = key.start_mark.line
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line
        else:
            break
    return line + 1


def write(app: AppSpec) -> str:
    """Return the spec as YAML, such that `parse` gives it back."""
    value = app.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for service in value["services"].values():
        del service["name"]
    return yaml.dump(value, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False, width=120)
