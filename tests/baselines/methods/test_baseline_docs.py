"""The page on baselines agrees with the registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultset.baselines.api import registry

PAGE = (Path(__file__).parents[3] / "docs" / "baselines.md").read_text()


TASKS = {"Detection": "detection", "Localization": "localization", "Root cause": "rca"}


def row(spec: registry.BaselineSpec) -> str:
    cells = (
        f"`{spec.name}`",
        spec.title,
        spec.kind,
        ", ".join(spec.tables) or "nothing",
        ", ".join(sorted(spec.needs)) or "-",
        "yes" if spec.stochastic else "no",
        spec.speed,
        spec.complexity,
        spec.paper,
    )
    return f"| {' | '.join(cells)} |"


@pytest.mark.parametrize("title", TASKS)
def test_the_table_is_the_registry(title: str) -> None:
    order = ("named", "method", "own", "rule", "control")
    specs = [spec for spec in registry.list_baselines().values() if spec.task == TASKS[title]]
    specs.sort(key=lambda spec: (order.index(spec.kind), spec.name))
    section = PAGE.split(f"### {title}\n")[1].split("\n##")[0]
    shown = [line for line in section.splitlines() if line.startswith("| `")]
    expected = [row(spec) for spec in specs]
    assert shown == expected, "write this table:\n" + "\n".join(expected)
