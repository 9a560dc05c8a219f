"""Campaigns as YAML files: the options of `collect` by their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from faultset.core.errors import UsageError
from faultset.core.reading.yaml_documents import parse_yaml, read_yaml_text
from faultset.core.suggestions import suggest


def read_config(path: Path, known: Iterable[str]) -> dict[str, Any]:
    """Return the options in a campaign file, with lists as comma-separated names.

    Parameters
    ----------
    known
        Names of the options that a file may have, without leading dashes.

    Raises
    ------
    UsageError
        The file cannot be read, is no mapping, or has an option that is not known or has no single value.
    """
    text = read_yaml_text(path, "campaign file")
    options = parse_yaml(text, f"campaign file {path}")
    if not isinstance(options, dict):
        found = type(options).__name__
        raise UsageError(f"campaign file {path} must be a mapping of options of collect, but is {found}")
    names = set(known)
    for name, value in options.items():
        if name not in names:
            raise UsageError(f'campaign file {path} has an unknown option "{name}"; {suggest(str(name), names)}')
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            options[name] = ",".join(value)
        elif value is None or isinstance(value, list | dict):
            raise UsageError(f'option "{name}" in campaign file {path} must be one value or a list of names')
    return options


def write_config(options: Mapping[str, Any]) -> str:
    """Return options as the text of a campaign file that `read_config` reads."""
    return yaml.safe_dump(dict(options), sort_keys=False, default_flow_style=None)
