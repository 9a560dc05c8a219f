"""The tables of fields in the guide for applications say what the models say."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from faultset.collector.runtime.steps import GENERIC_STEPS, Step

DOCUMENT = Path(__file__).parents[2] / "docs" / "developing" / "app.md"


def test_the_guide_is_up_to_date(field_tables: ModuleType) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text == field_tables.updated(text), "run: python scripts/field_tables.py docs/developing/app.md"


@pytest.mark.parametrize("step", GENERIC_STEPS, ids=lambda step: step.keyword)
def test_every_field_of_a_step_is_in_its_table_and_no_other(step: type[Step]) -> None:
    section = re.search(
        rf"^\*\*`{step.keyword}`\*\*: (.*?)(?=^\*\*|<!-- end)", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE
    )
    assert section is not None
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", section[1], flags=re.MULTILINE)
    wanted = {field.alias or name: field.is_required() for name, field in step.model_fields.items()}
    assert {name: default == "required" for name, _, default, _ in rows} == wanted
