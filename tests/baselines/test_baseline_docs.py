"""The page on baselines says what the registry says, and its example works."""

from __future__ import annotations

import re
from pathlib import Path

from faultset.baselines import registry

PAGE = (Path(__file__).parents[2] / "docs" / "baselines.md").read_text()


def test_the_table_is_the_registry() -> None:
    rows = {}
    task = ""
    for line in PAGE.splitlines():
        if line in ("### Detection", "### Localization"):
            task = line[4:].lower()
        if found := re.match(r"\| `([\w-]+)` \|(.*)\|$", line):
            rows[found[1]] = (task, *(cell.strip() for cell in found[2].split("|")))
    expected = {
        spec.name: (
            spec.task,
            spec.title,
            spec.kind,
            ", ".join(spec.tables) or "nothing",
            ", ".join(sorted(spec.needs)) or "-",
            "yes" if spec.stochastic else "no",
            spec.speed,
            spec.paper,
        )
        for spec in registry.baselines().values()
    }
    assert rows == expected


def test_the_example_is_a_baseline(example, faulty, monkeypatch) -> None:
    monkeypatch.setattr(registry, "_announced", dict(registry.baselines()))
    code = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert code
    exec(code[1], {"__name__": "my_package"})
    ranking = registry.get("quietest").build().localize(example.view(faulty), 0)  # type: ignore[union-attr]
    assert set(ranking.scores) == set(example.view(faulty).services)
