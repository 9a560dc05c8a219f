"""A leaderboard on a narrow terminal says which columns it left out, and breaks no name."""

from __future__ import annotations

import io
import re
from dataclasses import replace

from rich.console import Console

from faultset.evaluators.evaluation import Evaluation
from faultset.evaluators.leaderboards import terminal
from faultset.evaluators.leaderboards.leaderboard import build_leaderboard
from faultset.evaluators.scoring.metrics import Metric

OWN = Metric(name="own", title="own metric", task="localization", meaning="always a half", compute=lambda row: 0.5)


def printed(make, width: int, *scorers: Metric) -> str:
    truths = [make.truth(f"e{i}", fault=f"fault-{i}") for i in range(3)]
    rows = [make.row(truth, "a-method-of-a-long-name", ranking={"b": 1.0}) for truth in truths]
    console = Console(width=width, file=io.StringIO(), record=True)
    terminal.show(build_leaderboard(rows, scorers=scorers), console)
    return console.export_text()


def test_columns_that_do_not_fit_are_named(make):
    narrow = printed(make, 100)
    assert re.search(r"leaderboard.md has all methods, \d+ more columns", " ".join(narrow.split()))
    assert "a-method-of-a-long-name" in narrow
    assert max(map(len, narrow.splitlines())) <= 100


def test_the_head_names_the_files_that_imported_cases_were_read_from(make):
    board = replace(
        build_leaderboard([make.row(make.truth(), "mine", ranking={"b": 1.0})]),
        settings={"imported_files": {"simple_data.csv": 7, "data.csv": 2}},
    )
    assert "(sha256 unknown), imported from data.csv (2), simple_data.csv (7), split" in terminal.render_text(
        board, 200
    )


def test_a_wide_terminal_shows_all_columns(make):
    assert "more column" not in printed(make, 240)


def test_the_metric_of_an_installed_scorer_is_shown_before_built_in_columns(make):
    narrow = printed(make, 100, OWN)
    (line,) = [line for line in narrow.splitlines() if "baseline" in line.split()]
    assert line.index("AC@1") < line.index("metric") < line.index("CPU")
    assert max(map(len, narrow.splitlines())) <= 100


def test_a_large_leaderboard_fits_a_screen_and_keeps_what_users_bring(make):
    truths = [make.truth(f"e{app}{i}", app=app, fault=f"f{i}") for app in ("hotel", "shop") for i in range(6)]
    rows = []
    for number in range(12):
        right = ["b", "a"][number > 8]
        for truth in truths:
            for protocol in ("detected", "oracle"):
                rows.append(make.row(truth, f"method-{number}", ranking={right: 1.0}, protocol=protocol))
                answer = {"system_level": truth.system_level, "fault_type": truth.fault_type}
                rows.append(make.row(truth, f"method-{number}", task="rca", answer=answer, protocol=protocol))
            rows.append(make.detection(truth, range(65, 101), f"method-{number}"))
    rows += [make.row(truth, "mine", kind="external", ranking={"c": 1.0}) for truth in truths]
    rows += [make.row(truth, "guess", kind="control", ranking={"d": 1.0}) for truth in truths]
    evaluation = Evaluation(rows=tuple(rows))
    board = evaluation.board
    assert all(len(terminal.render_text(board, width).splitlines()) <= 60 for width in (80, 100))
    text = terminal.render_text(board, 120)
    assert len(text.splitlines()) < 50
    assert [line.split()[1] for line in text.splitlines() if line.split()[1:2] in (["mine"], ["guess"])] == [
        "guess",
        "mine",
    ]
    assert " · all apps · " in text
    assert " · hotel · " not in text
    assert ", the first 6 of 14 methods" in text
    assert "more tables" in text
    assert repr(evaluation) == text


def test_the_table_of_a_task_is_that_in_which_answers_of_users_stand(make):
    truths = [make.truth(f"e{i}", fault=f"f{i}") for i in range(6)]
    both = [(truth, protocol) for truth in truths for protocol in ("detected", "oracle")]
    rows = [make.row(truth, "method", ranking={"b": 1.0}, protocol=protocol) for truth, protocol in both]
    rows += [make.row(truth, "mine", kind="external", ranking={"c": 1.0}, protocol="oracle") for truth in truths]
    text = terminal.render_text(build_leaderboard(rows), 120)
    assert "given: true onset" in text
    assert "mine" in text
    assert "1 more table (" in text
