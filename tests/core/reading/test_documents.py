"""JSON documents: what is refused, in one sentence."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from faultset.core.errors import DataError
from faultset.core.reading.documents import json_lines, parse_json, read_document


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 1}', '[{"b": {"x": [], "a": 1, "y": 2, "a": {}}}]', '{"a": 1, "\\u0061": 2}']
)
def test_a_key_that_stands_twice_in_an_object_is_refused(text: str) -> None:
    with pytest.raises(DataError, match=r"^it must hold each key once, but holds .?a.? twice; restore the file$"):
        parse_json(text, "it")
    with pytest.raises(DataError, match="twice"):
        parse_json(text.encode(), "it")


def test_equal_keys_of_different_objects_are_no_repetition() -> None:
    text = '{"a": {"a": [{"a": 1}, {"a": 2}]}, "n": ' + "9" * 4000 + "}"
    assert parse_json(text, "it")["a"] == {"a": [{"a": 1}, {"a": 2}]}


def test_a_repeated_key_is_found_in_files_and_in_lines(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text('{"a": 1, "a": 2}')
    with pytest.raises(DataError, match=r"x\.json must hold each key once"):
        read_document(file, dict[str, int])
    with pytest.raises(DataError, match=r"line 2 of it must hold each key once"):
        list(json_lines(b'{"a": 1}\n{"a": 1, "a": 2}\n', "it"))


def test_many_keys_that_stand_twice_cost_no_more_than_reading() -> None:
    text = "{" + ", ".join(f'"{number % 50_000}": 0' for number in range(100_000)) + "}"
    began = time.process_time()
    with pytest.raises(DataError, match="twice"):
        parse_json(text, "it")
    assert time.process_time() - began < 5
