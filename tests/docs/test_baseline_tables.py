"""The page of the baselines has every method as it is registered, with the data that it was developed on."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from faultset.baselines.api.registry import list_baselines

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "baselines.md"


def test_the_tables_of_baselines_are_up_to_date(baseline_tables: ModuleType) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == baseline_tables.updated(text), "run: python scripts/baseline_tables.py docs/reference/baselines.md"
    builtin = [s for s in list_baselines().values() if s.factory.__module__.startswith("faultset.")]
    assert all(f"| `{spec.name}` |" in text for spec in builtin)
    assert all(spec.developed_on is not None for spec in builtin)
