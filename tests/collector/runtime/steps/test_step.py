"""Templates, and steps that set values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import ValidationError
from step_runs import values_after

from faultset.collector import runtime
from faultset.collector.runtime.context import RequestContext
from faultset.collector.runtime.http.status import BadRequest
from faultset.collector.runtime.steps.basic import FindText, Require, SetValues, UniqueId
from faultset.collector.runtime.steps.step import getter


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("$a", 1),
        ("$b.c", [2, 3]),
        ("$b.missing.deep", None),
        ("$nothing", None),
        ("plain", "plain"),
        ({"x": "$a", "y": ["$a", 5]}, {"x": 1, "y": [1, 5]}),
        ({"each": "$b.c", "value": {"n": "$item", "a": "$a"}}, [{"n": 2, "a": 1}, {"n": 3, "a": 1}]),
        ({"each": "$nothing", "value": "$item"}, []),
    ],
)
def test_templates_are_filled_in(template: Any, value: Any) -> None:
    assert getter(template)({"a": 1, "b": {"c": [2, 3]}}) == value


SOURCES = sorted(Path(path) for folder in runtime.__path__ for path in Path(folder).rglob("*.py"))
WORDS = re.compile(
    r"hotel|night|booking|availability|nearby|consul\b|zerolog|\.go\b|\bgeo\b|jaeger|reservation|panic: ", re.IGNORECASE
)


def test_no_module_names_what_belongs_to_one_application() -> None:
    assert SOURCES
    found = {str(path): WORDS.findall(path.read_text()) for path in SOURCES}
    assert not {name: words for name, words in found.items() if words}


def test_values_and_texts_are_kept() -> None:
    step = SetValues(values={"b": {"c": "$a"}, "n": [1]}, texts={"t": "{b.c}/{none} {{x}}"})
    assert values_after(step, a=7) == {"a": 7, "b": {"c": 7}, "n": [1], "t": "7/ {x}"}


@pytest.mark.parametrize("text", ["{", "{a!r}", "{a:3}", "{}", "{a[0]}"])
def test_a_text_that_is_no_template_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="braces"):
        SetValues(texts={"t": text})


def test_identifiers_are_different_and_grow() -> None:
    handle = UniqueId(save="id").compile(cast(Any, None), "here")
    request, seen = RequestContext(values={}, trace=None), []
    for _ in range(200):
        handle(request)
        seen.append(int(request.values["id"]))
    assert len(set(seen)) == 200
    assert max(seen) < 2**63
    assert [number >> 18 for number in seen] == sorted(number >> 18 for number in seen)


def test_parts_of_a_text_are_found_once_in_order() -> None:
    text = "hi @b and @a, @b: http://x.example/1"
    assert values_after(FindText(text="$t", pattern=r"@(\w+)", save="m"), t=text)["m"] == ["b", "a"]
    assert values_after(FindText(text="$t", pattern=r"http://\S+", save="m"), t=text)["m"] == ["http://x.example/1"]
    assert values_after(FindText(text="$none", pattern="x", save="m"))["m"] == []
    with pytest.raises(ValidationError, match="regular expression"):
        FindText(text="$t", pattern="(", save="m")


def test_a_field_can_be_required_to_be_a_list() -> None:
    step = Require(fields=("ids",), lists=True, message="no list")
    assert values_after(step, ids='["1", "2"]')["ids"] == ["1", "2"]
    assert values_after(step, ids="[]")["ids"] == []
    for wrong in ("{}", "x", "", "3", "[" * 100_000):
        with pytest.raises(BadRequest, match="no list"):
            values_after(step, ids=wrong)
