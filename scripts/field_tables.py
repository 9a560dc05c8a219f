"""The field tables in `docs/dataset-format.md`, written from the schemas.

`python scripts/field_tables.py docs/dataset-format.md` brings the document up to date.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pyarrow as pa

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


def updated(text: str) -> str:
    """Return a document with the table between each pair of `fields` marks written anew."""

    def written(match: re.Match[str]) -> str:
        name = match["name"]
        return f"<!-- fields: {name} -->\n\n{field_table((TABLES | TRUTH_TABLES)[name])}\n\n<!-- end -->"

    return re.sub(r"<!-- fields: (?P<name>\w+) -->.*?<!-- end -->", written, text, flags=re.DOTALL)


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(updated(document.read_text(encoding="utf-8")), encoding="utf-8")
