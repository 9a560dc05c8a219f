"""A leaderboard on a narrow terminal says which columns it left out, and breaks no name."""

from __future__ import annotations

import io

from rich.console import Console

from faultset.evaluators.leaderboards import terminal
from faultset.evaluators.leaderboards.leaderboard import leaderboard_of


def printed(make, width: int) -> str:
    truths = [make.truth(f"e{i}", fault=f"fault-{i}") for i in range(3)]
    rows = [make.row(truth, "a-method-of-a-long-name", ranking={"b": 1.0}) for truth in truths]
    console = Console(width=width, file=io.StringIO(), record=True)
    terminal.show(leaderboard_of(rows, scorers=[]), console)
    return console.export_text()


def test_columns_that_do_not_fit_are_named(make):
    narrow = printed(make, 100)
    assert "Not shown in 100 columns: " in narrow
    assert "leaderboard.md has them." in narrow
    assert "a-method-of-a-long-name" in narrow
    assert max(map(len, narrow.splitlines())) <= 100


def test_a_wide_terminal_shows_all_columns(make):
    assert "Not shown" not in printed(make, 240)
