"""The page of the faults has every fault as it is declared."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from faultset.collector.faults.registry import faults

DOCUMENT = Path(__file__).parents[2] / "docs" / "concepts" / "faults.md"


def test_the_table_of_faults_is_up_to_date(document_tables: ModuleType) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text == document_tables.replace_tables(text), (
        "run: python scripts/document_tables.py docs/concepts/faults.md"
    )


def test_every_built_in_fault_and_its_effect_is_on_the_page_of_the_site(site_pages: ModuleType) -> None:
    rows = site_pages.build_faults_page()
    builtin = [spec for spec in faults().values() if spec.inject.__module__.startswith("faultset.collector.")]
    assert len(builtin) >= 65
    assert not [spec.name for spec in builtin if f"| `{spec.name}` | {spec.summary} |" not in rows]
