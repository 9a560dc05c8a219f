"""Contract checks for third-party scorers; call them from pytest.

Examples
--------
>>> from faultset.evaluators.testing import check_scorer
>>> from faultset.evaluators.scoring.localization import AC1
>>> check_scorer(AC1)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from faultset.core.times import SECOND_NS
from faultset.evaluators.leaderboards.formats import markdown, to_json
from faultset.evaluators.leaderboards.leaderboard import build_leaderboard
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.metrics import Metric
from faultset.evaluators.scoring.registry import check_declaration, find_scorer

__all__ = ["check_scorer"]
_START_NS = 1_760_000_000 * SECOND_NS
_SERVICES = ("cart", "geo", "pay", "web")
_MISSING = ("error", "timeout", "memory", "invalid", "no_alarm")


def check_scorer(scorer: Metric | str) -> None:
    """Check that a scorer works on every kind of answer.

    The scorer runs on synthetic answers of its task: right, wrong and failed ones, on episodes with and without a
    fault. The check asserts that

    1. the declaration is complete and valid;
    2. it returns a number for every answer: NaN leaves an episode out, shares are between 0 and 1;
    3. the same answers get the same values, regardless of the order of services;
    4. a failed method scores no better than the best answer;
    5. the value of guessing (`floor`) is a number in the same range;
    6. the metric appears in the leaderboard, in JSON and, if it is a headline, in Markdown.

    Parameters
    ----------
    scorer
        The metric, or its installed name.

    Raises
    ------
    AssertionError
        A rule is broken; the message says which, and for which answer.
    UsageError
        The declaration is invalid.
    """
    metric = find_scorer(scorer) if isinstance(scorer, str) else check_declaration(scorer)
    rows = _build_answers(metric.task)
    values = {row.key: _compute_value(metric, row) for row in rows}
    assert any(not math.isnan(value) for value in values.values()), (
        f"{metric.name} is NaN for every answer: fault and no-fault episodes, right and wrong ones"
    )
    for row in rows:
        reordered = dataclasses.replace(row, ranking=dict(reversed(list(row.ranking.items()))))
        repeated = _compute_value(metric, reordered)
        assert repeated == values[row.key] or (math.isnan(repeated) and math.isnan(values[row.key])), (
            f"{metric.name} must not depend on the order of services, got {values[row.key]} and then {repeated}"
        )
    _check_failures(metric, rows, values)
    if metric.floor is not None:
        for truth in {row.episode: row.truth for row in rows}.values():
            _check_range(metric, metric.floor(truth), f"floor of {_describe(truth)}")
    _check_tables(metric, rows)


def _check_failures(metric: Metric, rows: list[ResultRow], values: dict[Any, float]) -> None:
    sign = 1 if metric.better == "higher" else -1
    for faulty in (True, False):
        scored = [row for row in rows if row.truth.faulty is faulty and not math.isnan(values[row.key])]
        answered = [sign * values[row.key] for row in scored if row.status == "ok"]
        for row in scored:
            if row.status != "ok" and answered:
                assert sign * values[row.key] <= max(answered), (
                    f"{metric.name} gives {values[row.key]} to a method with status {row.status} on "
                    f"{_describe(row.truth)}, which is better than every answer"
                )


def _check_tables(metric: Metric, rows: list[ResultRow]) -> None:
    board = build_leaderboard(rows, scorers=[metric])
    tables = [table for table in board.tables if table.task == metric.task]
    assert tables, f"the leaderboard has no table of {metric.task}"
    for table in tables:
        names = {column.name for column in table.metrics}
        assert metric.name in names, f"{metric.name} is not in the table {table.title}"
        for entry in table.entries:
            estimate = entry.metrics[metric.name]
            assert estimate.known or estimate.reason, f"{metric.name} of {entry.baseline} is missing without a reason"
    assert metric.name in str(to_json(board)), f"{metric.name} is not in the JSON"
    if metric.headline:
        assert metric.title in markdown(board), f'the title "{metric.title}" is not in the Markdown'


def _compute_value(metric: Metric, row: ResultRow) -> float:
    assert metric.compute is not None
    subject = f"an answer with status {row.status} on {_describe(row.truth)}"
    try:
        value = metric.compute(row)
    except Exception as error:
        raise AssertionError(f"{metric.name} fails on {subject}: {type(error).__name__}: {error}") from error
    assert isinstance(value, int | float), (
        f"{metric.name} returns {type(value).__name__} for {subject}; return a number"
    )
    _check_range(metric, float(value), subject)
    return float(value)


def _check_range(metric: Metric, value: float, subject: str) -> None:
    if metric.unit == "share" and not math.isnan(value):
        assert 0.0 <= value <= 1.0, f"{metric.name} must be from 0 to 1, got {value} for {subject}"


def _describe(truth: Truth) -> str:
    return "an episode with a fault" if truth.faulty else "an episode without a fault"


def _build_answers(task: str) -> list[ResultRow]:
    """Return right, wrong, empty and failed answers, on four episodes with and two without a fault."""
    build_answer: Callable[[Truth, str], dict[str, Any]] = {
        "detection": _answer_detection,
        "localization": _answer_localization,
        "rca": _answer_diagnosis,
    }[task]
    truths = [_build_truth(f"fault-{i}", faulty=True) for i in range(4)] + [
        _build_truth(f"no-fault-{i}", faulty=False) for i in (0, 1)
    ]
    rows = [
        _build_row(truth, method, task, status="ok", **build_answer(truth, method))
        for truth in truths
        for method in ("right", "wrong", "silent")
    ]
    return rows + [_build_row(truth, status, task, status=status) for truth in truths for status in _MISSING]


def _answer_detection(truth: Truth, method: str) -> dict[str, Any]:
    seconds = range(41, 101)
    first = {"right": 65 if truth.faulty else 999, "wrong": 999 if truth.faulty else 50, "silent": 999}[method]
    flags = [second >= first for second in seconds]
    answer = {
        "times_ns": [_START_NS + second * SECOND_NS for second in seconds],
        "scores": [float(flag) for flag in flags],
        "flags": "".join("01"[flag] for flag in flags),
        "threshold": 0.5,
        "consecutive": 2,
        "evidence": [],
    }
    return {"answer": answer, "alarm_ns": _START_NS + (first + 1) * SECOND_NS if any(flags) else None}


def _answer_localization(truth: Truth, method: str) -> dict[str, Any]:
    orders = {"right": ("geo", "cart", "web"), "wrong": ("web", "pay", "geo"), "silent": ()}
    names = () if method == "right" and not truth.faulty else orders[method]
    answer = {"unknown": [], "confidence": 1.0, "evidence": [], "pods": {"geo-1": 2.0, "web-1": 1.0}}
    answer["metrics"] = [("geo", "cpu", 2.0), ("web", "cpu", 1.0)]
    return {
        "ranking": {name: float(len(names) - i) for i, name in enumerate(names)},
        "answer": answer if names else {},
        "given_alarm_ns": _START_NS + 66 * SECOND_NS,
        "alarm_source": "ksigma",
    }


def _answer_diagnosis(truth: Truth, method: str) -> dict[str, Any]:
    right = min(truth.diagnoses, default=(None, None))
    level, kind = {"right": right, "wrong": ("Hardware", "Aging")}.get(method, (None, None))
    return {
        "answer": {"system_level": level, "fault_type": kind, "confidence": 1.0, "evidence": []},
        "given_alarm_ns": _START_NS + 66 * SECOND_NS,
        "alarm_source": "ksigma",
        "majority_label": ("Application", "Code Defect"),
    }


def _build_row(truth: Truth, method: str, task: str, **changes: Any) -> ResultRow:
    return ResultRow(
        baseline=method,
        kind="method",
        needs=(),
        settings="0",
        dataset="example",
        version="1.0.0",
        split="cross",
        fold=0,
        task=task,
        protocol="detected",
        seed=0,
        cpu_seconds=0.1,
        truth=truth,
        **changes,
    )


def _build_truth(episode: str, *, faulty: bool) -> Truth:
    return Truth(
        episode=episode,
        app="example",
        fault=episode if faulty else None,
        no_fault_kind=None if faulty else "plain",
        targets=("geo",) if faulty else (),
        causes=(("geo",),) if faulty else (),
        candidates=_SERVICES,
        pod_causes=("geo-1",) if faulty else (),
        metric_causes=(("geo", "cpu"),) if faulty else (),
        calls=(("web", "cart"), ("web", "geo"), ("cart", "pay")),
        system_level="Application" if faulty else None,
        fault_type="Code Defect" if faulty else None,
        verdict="manifest" if faulty else "none",
        profile="standard",
        view_start_ns=_START_NS,
        view_end_ns=_START_NS + 100 * SECOND_NS,
        reference_end_ns=_START_NS + 40 * SECOND_NS,
        onset_ns=_START_NS + 60 * SECOND_NS if faulty else None,
        manifest_ns=_START_NS + 62 * SECOND_NS if faulty else None,
    )
