"""A leaderboard on a narrow terminal says which columns it left out, and breaks no name."""

from __future__ import annotations

import io

from rich.console import Console

from faultset.evaluators.leaderboards import terminal
from faultset.evaluators.leaderboards.leaderboard import leaderboard_of
from faultset.evaluators.scorers.contract import Metric

OWN = Metric(name="own", title="own metric", task="localization", meaning="always a half", compute=lambda row: 0.5)


def printed(make, width: int, *scorers: Metric) -> str:
    truths = [make.truth(f"e{i}", fault=f"fault-{i}") for i in range(3)]
    rows = [make.row(truth, "a-method-of-a-long-name", ranking={"b": 1.0}) for truth in truths]
    console = Console(width=width, file=io.StringIO(), record=True)
    terminal.show(leaderboard_of(rows, scorers=scorers), console)
    return console.export_text()


def test_columns_that_do_not_fit_are_named(make):
    narrow = printed(make, 100)
    assert "Not shown in 100 columns: " in narrow
    assert "leaderboard.md has them." in narrow
    assert "a-method-of-a-long-name" in narrow
    assert max(map(len, narrow.splitlines())) <= 100


def test_a_wide_terminal_shows_all_columns(make):
    assert "Not shown" not in printed(make, 240)


def test_the_metric_of_an_installed_scorer_is_shown_before_built_in_columns(make):
    narrow = printed(make, 100, OWN)
    (heads,) = [line for line in narrow.splitlines() if "baseline" in line.split()]
    assert heads.index("AC@1") < heads.index("own metric") < heads.index("failed")
    assert "own metric" not in narrow.partition("Not shown")[2]
    assert max(map(len, narrow.splitlines())) <= 100
