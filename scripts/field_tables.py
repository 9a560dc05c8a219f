"""The tables of fields in the documents: of an episode's tables and of the steps of a spec.

`python scripts/field_tables.py docs/reference/dataset-format.md docs/developing/app.md` brings both documents up to date.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import types
import typing
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from faultset.collector.runtime.steps import GENERIC_STEPS, Step
from faultset.collector.spec.steps import StepModel
from faultset.datasets.format.schemas import TABLES, TRUTH_TABLES


def field_table(schema: pa.Schema) -> str:
    """Return a Markdown table of a schema's fields: name, type, unit, whether it may be null, meaning."""
    lines = ["| field | type | unit | null | meaning |", "|---|---|---|---|---|"]
    for field in schema:
        metadata = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
        nullable = "yes" if field.nullable else "no"
        unit = metadata.get("unit", "")
        lines.append(f"| `{field.name}` | {type_name(field.type)} | {unit} | {nullable} | {metadata['description']} |")
    return "\n".join(lines)


def type_name(kind: pa.DataType) -> str:
    """Return the name of a type as people know it."""
    if pa.types.is_dictionary(kind):
        return "string, few values"
    if pa.types.is_timestamp(kind):
        return "timestamp, UTC ns"
    if pa.types.is_list(kind):
        return f"list of {type_name(kind.value_type)}"
    if pa.types.is_struct(kind):
        return "(" + ", ".join(f"{field.name}: {type_name(field.type)}" for field in kind) + ")"
    return str(kind)


def step_tables() -> str:
    """Return what every step does and a Markdown table of its fields."""
    parts = []
    for step in GENERIC_STEPS:
        first = inspect.cleandoc(step.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
        lines = [f"**`{step.keyword}`**: {first}", "", "| field | value | default | meaning |", "|---|---|---|---|"]
        meanings = _attribute_docstrings(step)
        for name, field in step.model_fields.items():
            given = field.get_default(call_default_factory=True)
            default = "required" if field.is_required() else f"`{json.dumps(given)}`"
            lines.append(f"| `{field.alias or name}` | {value_name(field.annotation)} | {default} | {meanings[name]} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def value_name(annotation: Any) -> str:
    """Return what a field of a step takes, in words."""
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return value_name(inside[0])
    if origin in (types.UnionType, typing.Union):
        return " or ".join(value_name(one) for one in inside if one is not types.NoneType)
    if origin is Literal:
        return " or ".join(f"`{one}`" for one in inside)
    if origin is tuple:
        return f"list of {value_name(inside[0])}"
    if origin is dict:
        return f"mapping of names to {value_name(inside[1])}s"
    words = {str: "text", bool: "`true` or `false`", int: "whole number", float: "number", Any: "value"}
    words[StepModel] = "step"
    return words[annotation]


def _attribute_docstrings(model: type[Step]) -> dict[str, str]:
    """Return the docstring below each field of a class; a field without one is an error."""
    found = {}
    for kind in (one for one in model.__mro__ if issubclass(one, Step) and one is not Step):
        (body,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(kind))).body
        assert isinstance(body, ast.ClassDef)
        for statement, after in zip(body.body, body.body[1:], strict=False):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                assert isinstance(after, ast.Expr), f"{kind.__name__}.{statement.target.id} has no docstring"
                found[statement.target.id] = inspect.cleandoc(ast.literal_eval(after.value)).replace("\n", " ")
    return found


def updated(text: str) -> str:
    """Return a document with the tables between each pair of `fields` or `steps` marks written anew."""

    def written(match: re.Match[str]) -> str:
        table = step_tables() if match["name"] is None else field_table((TABLES | TRUTH_TABLES)[match["name"]])
        return f"<!-- {match['mark']} -->\n\n{table}\n\n<!-- end -->"

    marks = r"<!-- (?P<mark>fields: (?P<name>\w+)|steps) -->.*?<!-- end -->"
    return re.sub(marks, written, text, flags=re.DOTALL)


if __name__ == "__main__":
    for document in map(Path, sys.argv[1:]):
        document.write_text(updated(document.read_text(encoding="utf-8")), encoding="utf-8")
