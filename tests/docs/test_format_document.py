from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from faultset.datasets.format.context import EpisodeContext, RecordingContext
from faultset.datasets.format.schemas import CHUNK_TRUTH_TABLES, SCHEMA_VERSION, TABLES, TRUTH_TABLES

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
DOCUMENT, RECORDINGS = FOLDER / "dataset-format.md", FOLDER / "recording-format.md"
SCHEMAS = CHUNK_TRUTH_TABLES | TABLES | TRUTH_TABLES


@pytest.fixture(scope="module")
def text() -> str:
    return DOCUMENT.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def recording_text() -> str:
    return RECORDINGS.read_text(encoding="utf-8")


def test_the_documents_are_up_to_date(text, recording_text, document_tables):
    for page, content in ((DOCUMENT, text), (RECORDINGS, recording_text)):
        assert content == document_tables.replace_tables(content), (
            f"run: python scripts/document_tables.py docs/reference/{page.name}"
        )


@pytest.mark.parametrize("table", SCHEMAS)
def test_every_field_of_every_table_is_documented_and_no_other(text, recording_text, table):
    section = re.search(rf"<!-- fields: {table} -->(.*?)<!-- end -->", text + recording_text, flags=re.DOTALL)
    assert section is not None
    described = re.findall(r"^\| `(\w+)`", section[1], flags=re.MULTILINE)
    listed = re.findall(r"^As in .*", section[1], flags=re.MULTILINE)
    described += [name for line in listed for name in re.findall(r"(?<!\[)`(\w+)`", line)]
    assert sorted(["episode", *described]) == sorted(SCHEMAS[table].names)


@pytest.mark.parametrize("table", SCHEMAS)
def test_every_field_has_a_meaning_and_lengths_of_time_a_unit(table, document_tables):
    for field in SCHEMAS[table]:
        assert field.metadata[b"description"]
        if field.name.endswith("_ns"):
            assert field.metadata[b"unit"] == b"ns"
    assert document_tables.field_table(SCHEMAS[table]).count("\n") == len(SCHEMAS[table]) + 1


def test_every_key_of_the_context_is_documented(text):
    section = text.split("## Context")[1].split("## Telemetry")[0]
    named = set(re.findall(r"`(\w+)`", section))
    assert {*(field.name for field in fields(EpisodeContext)), "schema_version"} <= named


def test_every_key_of_a_recordings_context_is_documented(recording_text):
    added = {field.name for field in fields(RecordingContext)} - {field.name for field in fields(EpisodeContext)}
    assert added <= set(re.findall(r"`(\w+)`", recording_text))


def test_the_document_names_the_schema_version(text):
    assert f"describes schema version {SCHEMA_VERSION}." in text


def test_the_python_examples_are_valid_code(text, recording_text):
    for code in re.findall(r"```python\n(.*?)```", text + recording_text, flags=re.DOTALL):
        compile(code, DOCUMENT.name, "exec")
