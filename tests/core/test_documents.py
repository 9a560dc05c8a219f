"""JSON documents: what is refused, in one sentence."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from faultset.core.documents import MAX_LEVELS, json_lines, parse_json, parse_yaml, read_document
from faultset.core.errors import DataError, UsageError


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


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
)


def test_plain_values_and_aliases_are_read() -> None:
    found = parse_yaml("a: &x {b: 1}\nc: [*x, {<<: *x, d: 2}]", "it")
    assert found == {"a": {"b": 1}, "c": [{"b": 1}, {"b": 1, "d": 2}]}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[" * 100_000, "nested deeper than 64 levels"),
        ("{a: " * 100_000, "nested deeper than 64 levels"),
        ("- " * 5_000, "nested deeper"),
        (LAUGHS, "more than 200,000 values"),
        ("&a [*a]", "repeats a value inside itself"),
        ("a: [", "is not YAML"),
        ("a: \x1b", "is not YAML"),
        ("!!python/object/apply:os.system [ls]", "is not YAML"),
        ("2026-99-99", "is not YAML"),
        ("*nowhere", "is not YAML"),
        ("{[a]: b}: c", "is not YAML"),
        ("a: 1\nb: [{c: 1, d: {c: 2}}, c]\na: 2", 'line 3 repeats the key "a"'),
        ("a:\n  - b: 1\n    b: 2", 'line 3 repeats the key "b"'),
    ],
)
def test_what_is_refused_gets_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_yaml(text, "app.yaml")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_depth_is_found_without_recursion_in_c() -> None:
    code = "from faultset.core.documents import parse_yaml; parse_yaml('[' * 10**6, 'x')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"deeper than {MAX_LEVELS}" in done.stderr
