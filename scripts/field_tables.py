"""Write tables of fields into documents: of an episode's tables and of the steps of a spec.

`python scripts/field_tables.py docs/dataset-format.md docs/extend/app.md` updates both documents.
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
    """Return a Markdown table of a schema's fields with type, unit, nullability and meaning."""
    lines = ["| field | type | unit | null | meaning |", "|---|---|---|---|---|"]
    for field in schema:
        metadata = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
        nullable = "yes" if field.nullable else "no"
        unit = metadata.get("unit", "")
        lines.append(f"| `{field.name}` | {type_name(field.type)} | {unit} | {nullable} | {metadata['description']} |")
    return "\n".join(lines)


def type_name(kind: pa.DataType) -> str:
    """Return a readable name of a type."""
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
    """Return the description and a Markdown table of the fields of each step."""
    parts = []
    for step in GENERIC_STEPS:
        first = inspect.cleandoc(step.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
        lines = [f"**`{step.keyword}`**: {first}", "", "| field | value | default | meaning |", "|---|---|---|---|"]
        meanings = _attribute_docstrings(step)
        for name, field in step.model_fields.items():
            value = field.get_default(call_default_factory=True)
            default = "required" if field.is_required() else f"`{json.dumps(value)}`"
            lines.append(f"| `{field.alias or name}` | {value_name(field.annotation)} | {default} | {meanings[name]} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def value_name(annotation: Any) -> str:
    """Return a readable name of the type of a step's field."""
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return value_name(inside[0])
    if origin in (types.UnionType, typing.Union):
        return " or ".join(value_name(option) for option in inside if option is not types.NoneType)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in inside)
    if origin is tuple:
        return f"list of {value_name(inside[0])}"
    if origin is dict:
        return f"mapping of names to {value_name(inside[1])}s"
    words = {str: "text", bool: "`true` or `false`", int: "whole number", float: "number", Any: "value"}
    words[StepModel] = "step"
    return words[annotation]


def _attribute_docstrings(model: type[Step]) -> dict[str, str]:
    """Return the docstring below each field of a class; every field must have one."""
    docstrings = {}
    for kind in (base for base in model.__mro__ if issubclass(base, Step) and base is not Step):
        (body,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(kind))).body
        assert isinstance(body, ast.ClassDef)
        for statement, after in zip(body.body, body.body[1:], strict=False):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                assert isinstance(after, ast.Expr), f"{kind.__name__}.{statement.target.id} has no docstring"
                docstrings[statement.target.id] = inspect.cleandoc(ast.literal_eval(after.value)).replace("\n", " ")
    return docstrings


def updated(text: str) -> str:
    """Return a document with updated tables between each pair of `fields` or `steps` marks."""

    def render(match: re.Match[str]) -> str:
        table = step_tables() if match["name"] is None else field_table((TABLES | TRUTH_TABLES)[match["name"]])
        return f"<!-- {match['mark']} -->\n\n{table}\n\n<!-- end -->"

    marks = r"<!-- (?P<mark>fields: (?P<name>\w+)|steps) -->.*?<!-- end -->"
    return re.sub(marks, render, text, flags=re.DOTALL)


if __name__ == "__main__":
    for document in map(Path, sys.argv[1:]):
        document.write_text(updated(document.read_text(encoding="utf-8")), encoding="utf-8")
