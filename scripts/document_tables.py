"""Write the tables of fields and faults between the marks of pages.

python scripts/document_tables.py docs/reference/dataset-format.md docs/reference/recording-format.md
python scripts/document_tables.py docs/concepts/faults.md
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pyarrow as pa

from faultset.collector.faults.registry import faults
from faultset.datasets.format.schemas import CHUNK_TRUTH_TABLES, TABLES, TRUTH_TABLES

_FAULTS_BEGIN, _FAULTS_END = "<!-- faults: begin -->", "<!-- faults: end -->"
SCHEMAS = CHUNK_TRUTH_TABLES | TABLES | TRUTH_TABLES
"""Schemas by name; `evidence` is the table of episodes, not that of recordings."""
FIRST = "episode"
"""First column of every table; the page describes it once."""
BASES = {"incidents": ("label", "dataset-format.md#label")}
"""Table -> table whose equal columns are only listed, and its section."""


def field_table(schema: pa.Schema) -> str:
    """Return a Markdown table of a schema's fields; a question mark marks nullable ones."""
    lines = ["| field | type | meaning |", "|---|---|---|"]
    for field in schema:
        metadata = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
        kind = type_name(field.type) + ("?" if field.nullable else "")
        unit = f", {metadata['unit']}" if "unit" in metadata else ""
        lines.append(f"| `{field.name}` | {kind}{unit} | {metadata['description']} |")
    return "\n".join(lines)


def type_name(kind: pa.DataType) -> str:
    """Return the common name of a type."""
    if pa.types.is_dictionary(kind):
        return "string"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_list(kind):
        return f"list of {type_name(kind.value_type)}"
    if pa.types.is_struct(kind):
        return "(" + ", ".join(get_nested_name(field) for field in kind) + ")"
    return "text" if pa.types.is_string(kind) else str(kind)


def get_nested_name(field: pa.Field) -> str:
    """Return the name of a struct's field, with the fields of nested structs."""
    return f"{field.name}: {type_name(field.type)}" if pa.types.is_nested(field.type) else field.name


def describe_fields(name: str) -> str:
    """Return the table of a schema without its first column; columns equal to those of its base are only listed."""
    fields = [field for field in SCHEMAS[name] if field.name != FIRST]
    if name not in BASES:
        return field_table(pa.schema(fields))
    base, section = BASES[name]
    equal = [field for field in fields if any(field.equals(other, check_metadata=True) for other in SCHEMAS[base])]
    listed = ", ".join(f"`{field.name}`" for field in equal)
    return f"{field_table(pa.schema([f for f in fields if f not in equal]))}\n\nAs in [`{base}`]({section}): {listed}."


def fault_table() -> str:
    """Return the built-in faults by level and type as a Markdown table, followed by the gray and the dormant ones."""
    builtin = {
        n: spec for n, spec in sorted(faults().items()) if spec.inject.__module__.startswith("faultset.collector.")
    }
    groups: dict[tuple[str, str], list[str]] = {}
    for name, spec in builtin.items():
        groups.setdefault((spec.system_level, spec.fault_type), []).append(f"`{name}`")
    lines = ["| level | type | faults |", "|---|---|---|"]
    lines += [f"| {level} | {kind} | {', '.join(names)} |" for (level, kind), names in sorted(groups.items())]
    gray = ", ".join(f"`{name}`" for name, spec in builtin.items() if spec.gray)
    lines += ["", f"**Gray faults:** {gray}.", "", "| dormant fault | why clients do not notice it |", "|---|---|"]
    lines += [f"| `{name}` | {spec.dormant_reason} |" for name, spec in builtin.items() if spec.dormant_reason]
    return "\n".join(lines)


def replace_tables(text: str) -> str:
    """Return a document with new tables between its marks."""

    def render(match: re.Match[str]) -> str:
        return f"<!-- fields: {match[1]} -->\n\n{describe_fields(match[1])}\n\n<!-- end -->"

    text = re.sub(r"<!-- fields: (\w+) -->.*?<!-- end -->", render, text, flags=re.DOTALL)
    if _FAULTS_BEGIN not in text:
        return text
    before, _, rest = text.partition(_FAULTS_BEGIN)
    return f"{before}{_FAULTS_BEGIN}\n{fault_table()}\n{_FAULTS_END}{rest.partition(_FAULTS_END)[2]}"


if __name__ == "__main__":
    for document in map(Path, sys.argv[1:]):
        document.write_text(replace_tables(document.read_text(encoding="utf-8")), encoding="utf-8")
