"""Specs as YAML: reading and writing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml
from pydantic import ValidationError

from faultset.collector.spec.app import AppSpec
from faultset.core.errors import UsageError


def parse(text: str, source: str, workload_of: Callable[[str], dict[str, Any]] | None = None) -> AppSpec:
    """Read a spec; raise UsageError naming the first wrong field.

    Parameters
    ----------
    text:
        YAML.
    source:
        Where the text is from, for the message.
    workload_of:
        Returns requests and mixes of another application, for a spec whose field `workload_of` names one.
    """
    try:
        value = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise UsageError(f"{source} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{source} is not an application spec: a mapping is wanted, found {type(value).__name__}")
    if workload_of is not None and isinstance(value.get("workload_of"), str):
        value = {**workload_of(value.pop("workload_of")), **value}
    try:
        return AppSpec.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the whole"
        more = f" ({error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise UsageError(f"{source} is wrong at {field}: {first['msg']}{more}; correct the spec") from None


def write(app: AppSpec) -> str:
    """Return the spec as YAML, such that `parse` gives it back."""
    value = app.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for service in value["services"].values():
        del service["name"]
    return yaml.dump(value, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False, width=120)
