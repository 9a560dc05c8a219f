from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from faultset.datasets.format.context import EpisodeContext
from faultset.datasets.format.schemas import SCHEMA_VERSION, TABLES, TRUTH_TABLES

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "dataset-format.md"
SCHEMAS = TABLES | TRUTH_TABLES


@pytest.fixture(scope="module")
def text() -> str:
    return DOCUMENT.read_text(encoding="utf-8")


def test_the_document_is_up_to_date(text, field_tables):
    assert text == field_tables.updated(text), "run: python scripts/field_tables.py docs/reference/dataset-format.md"


@pytest.mark.parametrize("table", SCHEMAS)
def test_every_field_of_every_table_is_documented_and_no_other(text, table):
    section = re.search(rf"<!-- fields: {table} -->(.*?)<!-- end -->", text, flags=re.DOTALL)
    assert section is not None
    assert re.findall(r"^\| `(\w+)`", section[1], flags=re.MULTILINE) == SCHEMAS[table].names


@pytest.mark.parametrize("table", SCHEMAS)
def test_every_field_has_a_meaning_and_lengths_of_time_a_unit(table, field_tables):
    for field in SCHEMAS[table]:
        assert field.metadata[b"description"]
        if field.name.endswith("_ns"):
            assert field.metadata[b"unit"] == b"ns"
    assert field_tables.field_table(SCHEMAS[table]).count("\n") == len(SCHEMAS[table]) + 1


def test_every_key_of_the_context_is_documented(text):
    section = text.split("## Context")[1].split("## Telemetry")[0]
    named = set(re.findall(r"`(\w+)`", section))
    assert {*(field.name for field in fields(EpisodeContext)), "schema_version"} <= named


def test_the_document_names_the_schema_version(text):
    assert f"describes schema version {SCHEMA_VERSION}." in text


def test_the_python_examples_are_valid_code(text):
    for code in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        compile(code, DOCUMENT.name, "exec")
