"""The page of the steps says what the models say."""

from __future__ import annotations

import re
from types import ModuleType

import pytest

from faultset.collector.runtime.steps import GENERIC_STEPS, Step


@pytest.mark.parametrize("step", GENERIC_STEPS, ids=lambda step: step.keyword)
def test_every_field_of_a_step_is_in_its_table_and_no_other(step: type[Step], site_pages: ModuleType) -> None:
    section = site_pages.steps_page().partition(f"\n## {step.keyword}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", section, flags=re.MULTILINE)
    wanted = {field.alias or name: field.is_required() for name, field in step.model_fields.items()}
    assert {name: default == "required" for name, _, default, _ in rows} == wanted
