"""The page about Chaos Mesh has every fault that it makes, with the kind that the fault becomes."""

from __future__ import annotations

import re
from pathlib import Path

from faultset.collector.faults.registry import FaultSpec, faults
from faultset.collector.platforms.kubernetes.chaos_mesh.installation import SAMPLES

DOCUMENT = Path(__file__).parents[2] / "docs" / "how-to" / "chaos-mesh.md"
BY_NAME = {"pod-kill": "pod-kill", "pod-failure": "pod-failure"}
"""Faults that Chaos Mesh makes without their declaring it, with the sample that is like them."""


def samples_of(spec: FaultSpec) -> set[str]:
    return {BY_NAME[spec.name]} if spec.name in BY_NAME else {*spec.needs} & SAMPLES.keys()


def test_every_fault_that_chaos_mesh_makes_is_in_the_table_with_its_kind() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (\w+) \|", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    wanted = {name: {SAMPLES[one].kind for one in samples_of(spec)} for name, spec in faults().items()}
    assert {name: {kind} for name, kind in rows} == {name: kinds for name, kinds in wanted.items() if kinds}
    assert len(rows) == len(dict(rows))
