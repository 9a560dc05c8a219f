"""Objects as `kubectl get -o` prints them in the formats that are no tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from faultset.datasets.kubectl.errors import CommandError
from faultset.datasets.kubectl.jsonpath import rendered, select, text_of
from faultset.datasets.kubectl.kinds import full_name
from faultset.datasets.kubectl.tables import in_columns

_FORMATS = ("wide", "yaml", "json", "name", "jsonpath=", "jsonpath-as-json=", "custom-columns=")
"""What `-o` takes; what ends with an equals sign goes on with a template."""


def check_format(output: str) -> str:
    """Return what follows `-o`, empty for a table; raise CommandError for a format that is not known."""
    form, equals, _ = output.partition("=")
    if output and form + equals not in _FORMATS:
        raise CommandError(f'the output format "{output[:40]}" is not known here; known are {", ".join(_FORMATS)}')
    return output


def yaml_text(value: Any) -> str:
    """Return a value as YAML with sorted keys, texts of several lines as blocks."""
    import yaml

    class Blocks(yaml.SafeDumper):
        pass

    def shown(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Blocks.add_representer(str, shown)
    return yaml.dump(value, Dumper=Blocks, sort_keys=True).rstrip()


def document(objects: Sequence[Mapping[str, Any]], output: str, *, single: bool, unknown: str | None = None) -> str:
    """Return objects in a format.

    Parameters
    ----------
    output
        What follows `-o`, with its template.
    single
        Whether one object was asked for by its name; it is then shown by itself, others as a List.
    unknown
        What stands for a field that an object has not; None leaves it empty, as kubectl does, in `custom-columns`
        `<none>`.

    Raises
    ------
    CommandError
        The format or its template cannot be understood.
    MissingFieldError
        With `unknown`, a path of a template leads to nothing.
    """
    form, _, template = check_format(output).partition("=")
    if form == "name":
        return "\n".join(full_name(one["kind"], one["metadata"]["name"]) for one in objects)
    if form == "custom-columns":
        return _custom_columns(objects, template, "<none>" if unknown is None else unknown)
    value: Any = objects[0] if single and objects else _list_of(objects)
    if form == "json":
        return json.dumps(value, indent=4, sort_keys=True)
    if form == "yaml":
        return yaml_text(value)
    if form == "jsonpath":
        return rendered(template, value, strict=unknown is not None)
    return json.dumps(select(value, template.strip("{}")), indent=4)


def _list_of(objects: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "items": list(objects), "kind": "List", "metadata": {"resourceVersion": ""}}


def _custom_columns(objects: Sequence[Mapping[str, Any]], template: str, unknown: str) -> str:
    columns = [column.partition(":") for column in template.split(",")]
    if not all(name and path for name, _, path in columns):
        raise CommandError("custom-columns takes NAME:PATH, or several joined by commas, as NAME:.metadata.name")
    rows = [
        [",".join(text_of(value) for value in select(one, path.strip("{}"))) or unknown for _, _, path in columns]
        for one in objects
    ]
    return in_columns([name for name, _, _ in columns], rows)
