"""Microscope: where the descent through the call graph ends."""

from __future__ import annotations

from faultset.baselines.methods.localization.graph_traversal import Microscope, descent_ends
from tests.baselines.conversations import SECOND, START, conversation, spoken


def test_the_descent_ends_where_no_callee_is_anomalous_and_cycles_end() -> None:
    calls = (("f", "a"), ("a", "b"), ("b", "a"), ("f", "c"))
    assert descent_ends(calls, "f", {"f": 4.0, "c": 4.0}) == ("c",)
    assert descent_ends(calls, "f", {"c": 4.0}) == ()
    assert descent_ends(calls, "f", {"f": 4.0, "a": 4.0, "b": 4.0}) == ()


def test_microscope_names_nobody_where_the_front_end_is_well() -> None:
    episode = spoken(spans=conversation(), calls=(("front", "cart"), ("cart", "db")))
    assert Microscope().localize(episode, START + 30 * SECOND).abstains
