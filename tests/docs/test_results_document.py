"""The page on metrics describes every column and status of a row of results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from faultset.evaluators.results.rows import RESULTS, Status

DOCS = Path(__file__).parents[2] / "docs"


def first_cells(page: str) -> set[str]:
    """Return the names in the first column of the tables of a page."""
    rows = re.findall(r"^\| (`.+?`) \|", (DOCS / page).read_text("utf-8"), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_every_column_is_described() -> None:
    page = (DOCS / "reference/metrics.md").read_text("utf-8")
    section = page.partition("## What a row holds")[2].partition("\n## ")[0]
    described = re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| (`.+?) \|", section, re.MULTILINE)))
    assert {*RESULTS.names} <= {*described}
    assert len(described) == len({*described})


def test_every_status_is_described() -> None:
    assert {*get_args(Status)} <= first_cells("reference/metrics.md") | first_cells("how-to/agent-runs.md")
