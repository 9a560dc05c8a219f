"""The table of detectors over several datasets of recordings."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.external.detectors_on_recordings import find_recorded_table, format_detectors


def make_entry(baseline: str, recall: float, gain: float | None, p: float | None) -> dict[str, Any]:
    known = {"low": 0.0, "high": 1.0}
    names = ("recall", "false_alarms_per_day", "vus_pr")
    against = None if gain is None else {"difference": {"value": gain}}
    kind = "control" if gain is None else "method"
    metrics = {name: {"value": recall, **known} for name in names}
    return {"baseline": baseline, "kind": kind, "metrics": metrics, "against": against, "adjusted_p": p}


def make_table(app: str, *entries: dict[str, Any]) -> dict[str, Any]:
    key = {"task": "detection", "protocol": "recorded", "app": app, "verdict": "manifest", "group": "telemetry"}
    return {**key, "faults": "all", "episodes": 3, "watched_s": 7200.0, "entries": entries}


def test_detectors_are_sorted_by_their_gain_and_bold_if_it_is_significant() -> None:
    first = make_table("a", make_entry("lof", 0.5, 0.2, 0.2), make_entry("random", 0.1, None, None))
    second = make_table("b", make_entry("ksigma", 0.75, 0.5, 0.01), make_entry("lof", 0.5, 0.1, 0.9))
    _, _, counts, *rows = format_detectors({"one": first, "two": second}).splitlines()
    assert counts == "| *incidents; hours watched* |  | 3; 2 h |  |  |  | 3; 2 h |  |  |  |"
    assert [row.split("|")[1].strip() for row in rows] == ["`ksigma`", "`lof`", "`random`"]
    assert rows[0] == "| `ksigma` | method |  |  |  |  | 0.75 [0.00, 1.00] | **+0.50** | 0.75 | 0.75 |"
    assert "| +0.20 |" in rows[1]
    assert "| +0.10 |" in rows[1]


def test_the_table_over_all_applications_is_preferred() -> None:
    tables = [make_table("a"), make_table("all apps"), {**make_table("all apps"), "protocol": "oracle"}]
    assert find_recorded_table({"tables": tables}) is tables[1]
    assert find_recorded_table({"tables": tables[:1]}) is tables[0]
    with pytest.raises(ValueError, match="run evaluate with --tasks detection"):
        find_recorded_table({"tables": tables[2:]})
