"""Write the tables of fields into a page: `python scripts/field_tables.py docs/reference/dataset-format.md`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pyarrow as pa

from faultset.datasets.format.schemas import CHUNK_TRUTH_TABLES, TABLES, TRUTH_TABLES

SCHEMAS = CHUNK_TRUTH_TABLES | TABLES | TRUTH_TABLES
"""Schemas by name; evidence is that of an episode."""


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
    """Return the name of a type as people know it."""
    if pa.types.is_dictionary(kind):
        return "string"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_list(kind):
        return f"list of {type_name(kind.value_type)}"
    if pa.types.is_struct(kind):
        return "(" + ", ".join(f"{field.name}: {type_name(field.type)}" for field in kind) + ")"
    return "text" if pa.types.is_string(kind) else str(kind)


def updated(text: str) -> str:
    """Return a document with a new table between each pair of marks."""

    def written(match: re.Match[str]) -> str:
        return f"<!-- fields: {match[1]} -->\n\n{field_table(SCHEMAS[match[1]])}\n\n<!-- end -->"

    return re.sub(r"<!-- fields: (\w+) -->.*?<!-- end -->", written, text, flags=re.DOTALL)


if __name__ == "__main__":
    for document in map(Path, sys.argv[1:]):
        document.write_text(updated(document.read_text(encoding="utf-8")), encoding="utf-8")
