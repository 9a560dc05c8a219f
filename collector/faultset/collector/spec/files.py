"""Read and write specs as YAML."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml
from pydantic import ValidationError

from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.rules import problems
from faultset.collector.spec.steps import StepTypes, first_problem
from faultset.core.documents import parse_yaml
from faultset.core.errors import UsageError


def read_mapping(text: str, source: str) -> dict[str, Any]:
    """Parse a YAML mapping; raise UsageError if the text is something else."""
    value = parse_yaml(text, source)
    if not isinstance(value, dict):
        raise UsageError(
            f"{source} must be a YAML mapping with an application spec, got {type(value).__name__}; correct the file"
        )
    return value


def parse(
    text: str,
    source: str,
    *,
    steps: StepTypes,
    code: str | None = None,
    workload_of: Callable[[str], dict[str, Any]] | None = None,
) -> AppSpec:
    """Parse a spec.

    Parameters
    ----------
    text
        YAML.
    source
        Origin of the text, for error messages.
    steps
        Step types that operations may use.
    code
        Location of the application's own code, if the spec does not name it.
    workload_of
        Returns requests and mixes of another application, for a spec with the field `workload_of`.

    Raises
    ------
    UsageError
        The spec is invalid; the message gives the line, field and reason of the first problem.
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


def wrong_spec(text: str, source: str, path: tuple[str | int, ...], reason: str, *, more: int = 0) -> UsageError:
    """Return the error for an invalid field, of `more` other problems."""
    field = ".".join(map(str, path)) or "the top level"
    others = f" ({more} more)" if more else ""
    return UsageError(f"{source}, line {_find_line(text, path)}, field {field}: {reason}{others}; correct the spec")


def _find_line(text: str, path: tuple[str | int, ...]) -> int:
    """Return the line of a field in a YAML text, or of its innermost existing parent."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    line = 0
    for key in path:
        if isinstance(node, yaml.MappingNode):
            match = next((pair for pair in node.value if pair[0].value == str(key)), None)
            if match is None:
                break
            key_node, node = match
            line = key_node.start_mark.line
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
            line = node.start_mark.line
        else:
            break
    return line + 1


def format_spec(app: AppSpec) -> str:
    """Return the spec as YAML that `parse` reads back."""
    value = app.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for service in value["services"].values():
        del service["name"]
    return yaml.dump(value, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False, width=120)
