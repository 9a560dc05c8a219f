"""Registrations say on which data a method was developed."""

from __future__ import annotations

from faultset.baselines.api.registry import list_baselines


def test_a_method_that_reads_telemetry_was_developed_on_something() -> None:
    for spec in list_baselines().values():
        if spec.factory.__module__.startswith("faultset.") and spec.tables:
            assert spec.developed_on or spec.name == "constant-pair", spec.name


def test_our_variants_are_not_listed_as_published_methods() -> None:
    own = {"nezha-patterns", "graph-traversal", "deeplog-markov", "nearest-signature", "rca-tree", "rca-forest"}
    assert {list_baselines()[name].kind for name in own} == {"own"}
