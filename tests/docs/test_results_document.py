"""The page on metrics names where the columns of a row of results are described, and describes every status."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import get_args

from faultset.evaluators import ResultRow, Truth
from faultset.evaluators.results.rows import RESULTS, Status

DOCS = Path(__file__).parents[2] / "docs"


def first_cells(page: str) -> set[str]:
    """Return the names in the first column of the tables of a page."""
    rows = re.findall(r"^\| (`.+?`) \|", (DOCS / page).read_text("utf-8"), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_every_column_is_a_field_of_a_public_class() -> None:
    page = (DOCS / "reference/metrics.md").read_text("utf-8")
    assert "`faultset.evaluators.ResultRow` and of its `Truth`" in page
    fields = {field.name for record in (ResultRow, Truth) for field in dataclasses.fields(record)}
    assert {*RESULTS.names} == fields - {"truth", "alarm_location"}


def test_every_status_is_described() -> None:
    assert {*get_args(Status)} <= first_cells("reference/metrics.md") | first_cells("how-to/agent-runs.md")
