"""YAML of strangers: one sentence for what is too deep, too large, circular or no YAML."""

from __future__ import annotations

import subprocess
import sys

import pytest

from faultset.core.errors import UsageError
from faultset.core.reading.yaml_documents import MAX_LEVELS, parse_yaml

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
    code = "from faultset.core.reading.yaml_documents import parse_yaml; parse_yaml('[' * 10**6, 'x')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"deeper than {MAX_LEVELS}" in done.stderr
