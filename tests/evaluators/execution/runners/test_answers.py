"""Checks of answers: what is kept of them, and what is refused."""

from __future__ import annotations

import io
import json
import random
from typing import Any, get_args

import numpy as np
import pyarrow.parquet as pq
import pytest

from faultset.baselines.contract import Detection, Diagnosis, Evidence, Ranking
from faultset.datasets.testing import mutate, mutation_seeds
from faultset.evaluators.evaluation import Evaluation
from faultset.evaluators.execution.runners.answers import (
    MAX_LEFT_OUT,
    MAX_METRICS,
    InvalidAnswer,
    UnreadableReply,
    add_skipped_series,
    check_detection,
    check_diagnosis,
    check_ranking,
    fill_row,
    read_reply,
    reply_header,
)
from faultset.evaluators.execution.runners.messages import Action, RunnerOutcome
from faultset.evaluators.results.rows import ResultRow, rows_to_table, table_to_rows


def stored(answer: Ranking) -> dict[str, Any]:
    return json.loads(check_ranking(answer, ("a", "b")).text)


def test_pods_and_metrics_are_stored_best_first() -> None:
    text = stored(Ranking(scores={"a": 1.0}, pods={"a-1": 1, "a-2": 3.0}, metrics={("a", "x"): 1.0, ("a", "y"): 2.0}))
    assert list(text["pods"].items()) == [("a-2", 3.0), ("a-1", 1.0)]
    assert text["metrics"] == [["a", "y", 2.0], ["a", "x", 1.0]]
    assert "pods" not in stored(Ranking(scores={"a": 1.0}))


def test_only_the_best_metrics_are_stored_but_all_are_counted() -> None:
    many = {("a", f"m{number:03}"): float(number) for number in range(MAX_METRICS + 5)}
    text = stored(Ranking(scores={"a": 1.0}, metrics=many))
    assert (len(text["metrics"]), text["metrics_named"]) == (MAX_METRICS, MAX_METRICS + 5)
    assert text["metrics"][0][1] == f"m{MAX_METRICS + 4:03}"


@pytest.mark.parametrize("pods", [["a-1"], {"a-1": "high"}, {"a-1": float("nan")}])
def test_pods_without_numbers_are_no_answer(pods: Any) -> None:
    with pytest.raises(InvalidAnswer, match="pod"):
        check_ranking(Ranking(scores={"a": 1.0}, pods=pods), ("a", "b"))


def test_a_ranking_keeps_the_pods_and_metrics_of_services_that_it_names() -> None:
    scores = {"a": 2.0, "b": 0.0}
    pods = {("a", "a-1"): 2.0, ("a", "a-2"): 0.0, ("b", "b-1"): 1.0, ("a", "a-3"): float("inf")}
    found = Ranking.of(scores, ("a", "b"), metrics={("a", "x"): 1.0, ("b", "x"): 1.0}, pods=pods)
    assert found.pods == {"a-1": 2.0}
    assert found.metrics == {("a", "x"): 1.0}
    assert Ranking.of({}, ("a", "b"), pods=pods).pods == {}


def test_an_answer_names_the_first_series_that_its_method_left_out_and_counts_all() -> None:
    answer = check_ranking(Ranking(scores={"a": 1.0}), ("a", "b"))
    assert add_skipped_series(answer, set()) == answer
    series = {("a", f"setting_{number:03}") for number in range(MAX_LEFT_OUT + 5)}
    text = json.loads(add_skipped_series(answer, series).text)
    assert text["left_out"][0] == ["a", "setting_000"]
    assert (len(text["left_out"]), text["left_out_count"]) == (MAX_LEFT_OUT, MAX_LEFT_OUT + 5)


SECOND = 1_000_000_000


TASKS: dict[Action, str] = {"detect": "detection", "localize": "localization", "diagnose": "rca"}


EVIDENCE = (Evidence(service="a", subject="cpu", score=3.0, detail="high \udcff"),)


def valid_reply(action: Action, row: ResultRow) -> bytes:
    """Return what a well-behaved method's process writes."""
    start, end = row.truth.view_start_ns, row.truth.view_end_ns
    times = np.array([start + 41 * SECOND + i * SECOND + (i == 3) for i in range(6)])
    flags = np.array([False, True, True, True, False, False])
    detection = Detection(
        alarm_ns=int(times[2]), times_ns=times, scores=np.full(6, 0.1), flags=flags, threshold=1.0, evidence=EVIDENCE
    )
    answer = {
        "detect": lambda: check_detection(detection, start, end),
        "localize": lambda: check_ranking(
            Ranking(scores={"a": 1.0, "z": 2.0}, metrics={("a", "cpu"): 1.0}, pods={"a-1": 2.0}, evidence=EVIDENCE),
            row.truth.candidates,
        ),
        "diagnose": lambda: check_diagnosis(Diagnosis(system_level="Network", fault_type=None, evidence=EVIDENCE)),
    }[action]()
    return reply_header(7, RunnerOutcome(status="ok", answer=answer, reason="\ud800", seconds=0.1, cpu_seconds=0.1))


def taken_in(header: bytes, action: Action, row: ResultRow) -> ResultRow:
    """Do with a reply what an evaluation does, up to its tables."""
    reply = read_reply(header, b"", 7, action)
    filled = fill_row(row, reply)
    sink = io.BytesIO()
    pq.write_table(rows_to_table([filled]), sink)
    [stored] = table_to_rows(pq.read_table(sink), {row.episode: row.truth})
    Evaluation(rows=(stored,)).leaderboard(row.task).to_dict()
    return filled


def row_for(action: Action, make: Any) -> ResultRow:
    return make.row(make.truth(), task=TASKS[action], protocol="detected")


@pytest.mark.parametrize("action", get_args(Action))
def test_a_mutated_reply_is_taken_in_or_refused(action: Action, make: Any) -> None:
    row = row_for(action, make)
    whole = valid_reply(action, row)
    assert taken_in(whole, action, row).status == "ok"
    refused = 0
    for seed in mutation_seeds():
        rng = random.Random(f"{action}/{seed}")
        content = json.loads(whole)
        if seed % 2:
            # what lies inside of a reply is text in turn
            content["answer"]["text"] = mutate(content["answer"]["text"].encode(), rng).decode("utf-8", "replace")
        said = ""
        try:
            taken_in(json.dumps(content).encode() if seed % 2 else mutate(whole, rng), action, row)
        except UnreadableReply as error:
            refused += 1
            said = str(error)
        except Exception as error:
            raise AssertionError(f"seed {seed} ends in {type(error).__name__}: {error}") from error
        assert said.isprintable(), f"seed {seed}: {said!r}"
    assert refused


@pytest.mark.parametrize(
    ("action", "text"),
    [
        ("detect", {"times_even": [0, 1, 10**12]}),
        ("detect", {"times_even": [0, 0, 6]}),
        ("detect", {"times_even": [2**63 - 2, 1, 6]}),
        ("detect", {"times_ns": [1, 2]}),
        ("detect", {"times_ns": ["x"] * 6}),
        ("detect", {"scores": [None] * 6}),
        ("detect", {"flags": "012345"}),
        ("detect", {"consecutive": "2"}),
        ("localize", {"pods": {"a": "high"}}),
        ("localize", {"metrics": [["a", "cpu"]]}),
        ("localize", {"more": 1}),
        ("diagnose", {"system_level": ["Network"]}),
        ("diagnose", {"evidence": [{"service": 5}]}),
    ],
)
def test_a_forged_answer_is_an_error_of_its_method(action: Action, text: dict[str, Any], make: Any) -> None:
    row = row_for(action, make)
    content = json.loads(valid_reply(action, row))
    kept = {
        k: v
        for k, v in json.loads(content["answer"]["text"]).items()
        if not (k[:5] == "times" and "times" in str(text))
    }
    content["answer"]["text"] = json.dumps(kept | text)
    with pytest.raises(UnreadableReply):
        read_reply(json.dumps(content).encode(), b"", 7, action)


@pytest.mark.parametrize(
    "changes", [{"ranking": {"nobody": 1.0}}, {"alarm_ns": 5}, {"ranking": {"a": 1.0, "\x1b": 2.0}}]
)
def test_an_answer_about_what_the_episode_does_not_have_is_an_error(changes: dict[str, Any], make: Any) -> None:
    row = row_for("localize", make)
    content = json.loads(valid_reply("localize", row))
    content["answer"] |= changes
    filled = taken_in(json.dumps(content).encode(), "localize", row)
    assert (filled.status, filled.ranking, filled.alarm_ns) == ("error", {}, None)
    assert filled.reason.startswith("its process sent an invalid reply")


def test_an_answer_that_nobody_asked_for_is_refused(make: Any) -> None:
    header = valid_reply("diagnose", row_for("diagnose", make))
    with pytest.raises(UnreadableReply, match="does not fit the request"):
        read_reply(header, b"", 7, None)
