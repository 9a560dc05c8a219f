"""A scorer of another distribution is in every table, page and comparison; a broken one harms nothing."""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import math

import pytest
from rich.console import Console

from faultset.evaluators.comparison.pairing import compare
from faultset.evaluators.evaluation import Evaluation
from faultset.evaluators.leaderboards import formats, scores
from faultset.evaluators.leaderboards.formats import leaderboard_frame, markdown, to_json
from faultset.evaluators.leaderboards.leaderboard import build_leaderboard
from faultset.evaluators.reports.page import render
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.scoring.localization import hit_at
from faultset.evaluators.scoring.metrics import Metric
from faultset.evaluators.scoring.registry import TASK_METRICS

FIRST_LETTER = Metric(
    name="first_letter",
    title="first letter",
    unit="share",
    task="localization",
    meaning="share of answers whose first service is called b",
    compute=lambda row: float(max(row.ranking, key=row.ranking.__getitem__, default="") == "b"),
    floor=lambda truth: 1 / len(truth.candidates),
)


HIT10 = hit_at(10)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "load_scorers", lambda: (FIRST_LETTER,))


def rows_of(make, answers: str) -> list[ResultRow]:
    truths = [make.truth(f"e{i}", fault=f"fault-{i}") for i in range(len(answers))]
    return [make.row(truth, ranking={name: 1.0}) for truth, name in zip(truths, answers, strict=True)]


def test_an_own_metric_is_in_json_markdown_terminal_and_report(make, installed):
    rows = rows_of(make, "bba")
    board = build_leaderboard(rows)
    (table,) = board.tables
    assert table.entries[0].metrics["first_letter"].value == pytest.approx(2 / 3)
    assert table.entries[0].metrics["first_letter"].interval_known
    assert table.floor["first_letter"].value == pytest.approx(0.2)
    assert json.loads(json.dumps(to_json(board)))["tables"][0]["entries"][0]["metrics"]["first_letter"]["n"] == 3
    assert "| first letter |" in markdown(board)
    console = Console(width=240, file=io.StringIO(), record=True)
    formats.show_leaderboard(board, console)
    assert "first letter" in console.export_text()
    page = render(board, rows, [], None)
    assert "<h3>first letter" in page


def test_hit_at_10_needs_one_declaration(make, monkeypatch: pytest.MonkeyPatch):
    task = TASK_METRICS["localization"]
    grown = dataclasses.replace(task, metrics=(*task.metrics, HIT10), compared=(*task.compared, HIT10))
    monkeypatch.setitem(TASK_METRICS, "localization", grown)
    names = tuple(f"s{number:02d}" for number in range(20))
    ranking = {name: -float(number) for number, name in enumerate(names)}
    truths = [make.truth(f"e{i}", fault=f"fault-{i}", candidates=names, causes=((names[i],),)) for i in (3, 8, 9, 12)]
    new, old = ([make.row(truth, ranking=answer) for truth in truths] for answer in (ranking, {}))
    board = build_leaderboard(new)
    (table,) = board.tables
    assert (table.entries[0].metrics["hit10"].value, table.floor["hit10"].value) == (0.75, 0.5)
    assert to_json(board)["tables"][0]["entries"][0]["metrics"]["hit10"]["k"] == 3
    assert leaderboard_frame(board.tables)["hit10"].tolist() == [0.75]
    assert "hit@10" in render(board, new, [], None)
    (entry,) = compare(Evaluation(rows=tuple(old)), Evaluation(rows=tuple(new))).tables[0].entries
    assert (entry.old["hit10"], entry.new["hit10"]) == (0.0, 0.75)


def test_an_own_metric_is_compared(make, installed):
    old, new = (Evaluation(rows=tuple(rows_of(make, answers))) for answers in ("aaa", "bba"))
    (entry,) = compare(old, new).tables[0].entries
    assert (entry.old["first_letter"], entry.new["first_letter"]) == (0.0, pytest.approx(2 / 3))


def test_a_scorer_that_raises_is_named_once_and_its_value_is_missing(make, caplog: pytest.LogCaptureFixture):
    broken = dataclasses.replace(FIRST_LETTER, name="broken", compute=lambda row: 1 / 0)
    with caplog.at_level(logging.WARNING):
        board = build_leaderboard(rows_of(make, "bba"), scorers=[broken])
    assert board.tables[0].entries[0].metrics["broken"].reason == "no scored episode"
    assert [record.getMessage().partition(" failed")[0] for record in caplog.records] == ['the scorer "broken"']


def test_what_is_nan_is_left_out_and_counted(make):
    some = dataclasses.replace(
        FIRST_LETTER, name="some", compute=lambda row: math.nan if row.episode == "e0" else float("b" in row.ranking)
    )
    estimate = build_leaderboard(rows_of(make, "bba"), scorers=[some]).tables[0].entries[0].metrics["some"]
    assert (estimate.value, estimate.n) == (0.5, 2)
