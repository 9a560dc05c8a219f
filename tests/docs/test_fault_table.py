"""The page of the faults has every fault as it is declared."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

DOCUMENT = Path(__file__).parents[2] / "docs" / "concepts" / "faults.md"


def test_the_table_of_faults_is_up_to_date(fault_table: ModuleType) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text == fault_table.updated(text), "run: python scripts/fault_table.py docs/concepts/faults.md"
