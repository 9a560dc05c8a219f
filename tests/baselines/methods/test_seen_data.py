"""The page on seen data agrees with the registrations."""

from __future__ import annotations

import re
from pathlib import Path

from faultset.baselines.api.registry import BaselineSpec, list_baselines

PAGE = (Path(__file__).parents[3] / "docs" / "seen-data.md").read_text()
LETTERS = {data: letter for letter, data in re.findall(r"^\| ([A-Z]) \| (.+) \|$", PAGE, re.MULTILINE)}


def row(spec: BaselineSpec) -> str:
    assert spec.developed_on is not None, f"{spec.name} does not declare developed_on"
    letters = " ".join(LETTERS[data] for data in spec.developed_on)
    return f"| `{spec.name}` | {spec.task} | {spec.kind} | {letters or 'nothing'} |"


def test_the_table_is_the_registry() -> None:
    specs = sorted(list_baselines().values(), key=lambda spec: (spec.task, spec.name))
    expected = [row(spec) for spec in specs if spec.factory.__module__.startswith("faultset.")]
    shown = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert shown == expected, "write this table:\n" + "\n".join(expected)


def test_a_method_that_reads_telemetry_was_developed_on_something() -> None:
    for spec in list_baselines().values():
        if spec.factory.__module__.startswith("faultset.") and spec.tables:
            assert spec.developed_on or spec.name == "constant-pair", spec.name


def test_our_variants_are_not_listed_as_published_methods() -> None:
    own = {"nezha-patterns", "graph-traversal", "deeplog-markov", "nearest-signature", "rca-tree", "rca-forest"}
    assert {list_baselines()[name].kind for name in own} == {"own"}
