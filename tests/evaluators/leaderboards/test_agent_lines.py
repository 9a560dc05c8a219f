"""Agents beside algorithms: trials, harness errors, and costs are told apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from faultset.agents.runs.record import AgentRun
from faultset.agents.runs.trajectory_contents import InspectedServices
from faultset.evaluators.leaderboards.agents import COLUMNS, agent_lines, cells, markdown_lines
from faultset.evaluators.leaderboards.records import AgentLine
from faultset.evaluators.leaderboards.scores import score_episodes
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.results.truth import Truth

SECOND = 10**9


def truth(number: int, *, faulty: bool = True) -> Truth:
    return Truth(
        episode=f"e{number}",
        app="shop",
        fault=f"fault-{number}" if faulty else None,
        no_fault_kind=None if faulty else "plain",
        targets=("a",) if faulty else (),
        causes=(("a",),) if faulty else (),
        candidates=("a", "b", "c"),
        system_level="Application" if faulty else None,
        fault_type="Code Defect" if faulty else None,
        verdict="manifest" if faulty else "none",
        profile="standard",
        view_start_ns=0,
        view_end_ns=600 * SECOND,
        reference_end_ns=200 * SECOND,
        onset_ns=300 * SECOND if faulty else None,
        manifest_ns=300 * SECOND if faulty else None,
    )


def row(about: Truth, name: str, kind: str, services: Sequence[str], trial: int = 0, **fields: Any) -> ResultRow:
    return ResultRow(
        **{
            "baseline": name,
            "kind": kind,
            "needs": (),
            "settings": "",
            "dataset": "d",
            "version": "1",
            "split": "cross",
            "fold": 0,
            "task": "localization",
            "protocol": "oracle",
            "seed": trial,
            "status": "ok",
            "ranking": {service: float(len(services) - place) for place, service in enumerate(services)},
            "truth": about,
        }
        | fields
    )


def run(name: str, **fields: Any) -> AgentRun:
    return AgentRun.model_validate(
        {"run": name, "format": "faultset", "agent": "x", "model": "m", "task": "localization", "status": "ok"}
        | {"steps": 4, "tool_calls": 10, "tool_errors": 0, "repeats": 1, "not_recorded": 0, "refused": 0}
        | {"prompt_tokens": 1000, "completion_tokens": 100, "tokens_source": "api", "cost_usd": 0.5, "seconds": 2.0}
        | fields
    )


def lines_of(answers: dict[int, list[tuple[list[str], dict[str, Any], dict[str, Any]]]]) -> tuple[AgentLine, ...]:
    """Make lines of an agent's answers: episode -> trials of services, fields of the row and fields of the run."""
    rows, runs = [], []
    for number, trials in answers.items():
        about = truth(number)
        rows += [row(about, "best", "method", ["a"]), row(about, "worse", "method", ["b", "a"])]
        rows += [row(about, "guess", "control", ["c", "a"])]
        for trial, (services, of_row, of_run) in enumerate(trials):
            key = f"r{number}-{trial}"
            rows.append(row(about, "x (m)", "agent", services, trial, answer={"agent_run": key}, **of_row))
            runs.append(run(key, **of_run))
    inspected = {"r0-0": InspectedServices(calls={"kubectl": 3}, requested=frozenset({"a"}), observed=frozenset())}
    return agent_lines(score_episodes(rows), runs, inspected)


def test_one_attempt_and_all_attempts_are_counted_apart() -> None:
    right, wrong = (["a"], {}, {}), (["b"], {}, {})
    (line,) = lines_of({0: [right, right, right], 1: [right, right, wrong], 2: [wrong, wrong, wrong]})
    assert line.pass_1.value == pytest.approx((1 + 2 / 3 + 0) / 3)
    assert line.pass_all.value == pytest.approx(1 / 3)
    assert (line.trials, line.runs, line.episodes) == (3, 9, 3)


def test_the_best_algorithm_is_compared_on_the_same_episodes_and_controls_are_apart() -> None:
    (line,) = lines_of({0: [(["a"], {}, {})], 1: [(["b"], {}, {})]})
    assert (line.best_algorithm, line.best_value, line.strongest_control) == ("best", 1.0, "guess")
    assert line.difference is not None
    assert line.difference.value == pytest.approx(-0.5)
    assert line.solved == {"both": 1, "algorithm alone": 1}
    assert line.control_value == 0.0


def test_errors_of_the_harness_are_misses_and_a_second_number_leaves_them_out() -> None:
    broken = ([], {"status": "harness_error"}, {"status": "harness_error", "seconds": 99.0})
    (line,) = lines_of({0: [(["a"], {}, {})], 1: [broken]})
    assert (line.pass_1.value, line.without_harness_errors.value) == (0.5, 1.0)
    assert line.statuses == {"ok": 1, "harness_error": 1}
    assert line.seconds == 2.0


def test_attempts_that_missed_something_recorded_are_left_out_of_the_clean_ones() -> None:
    (line,) = lines_of({0: [(["a"], {}, {})], 1: [(["b"], {}, {"not_recorded": 5, "refused": 2})]})
    assert (line.fully_recorded.value, line.not_recorded, line.refused, line.repeats) == (1.0, 0.25, 0.1, 0.1)


def test_tokens_costs_and_inspected_services_are_those_of_the_runs() -> None:
    (line,) = lines_of({0: [(["a"], {}, {})], 1: [(["b"], {}, {"cost_usd": 1.5, "tokens_source": "estimated"})]})
    assert (line.prompt_tokens, line.completion_tokens, line.cost_usd, line.total_cost_usd) == (1000, 100, 1.0, 2.0)
    assert line.tokens_estimated
    assert (line.calls, line.cause_requested, line.cause_observed) == ({"kubectl": 3}, 1.0, 0.0)
    assert cells(line)[6] == "≈1,000 + ≈100"


def test_an_agent_without_a_model_has_no_tokens_and_no_cost() -> None:
    free = {"model": None, "prompt_tokens": None, "completion_tokens": None, "cost_usd": 0.0}
    (line,) = lines_of({0: [(["a"], {}, free)]})
    assert math.isnan(line.prompt_tokens)
    assert cells(line)[6:8] == ["\u2013", "\u2013"]


def test_every_column_has_a_cell_and_a_meaning() -> None:
    lines = lines_of({0: [(["a"], {}, {})]})
    assert len(cells(lines[0])) == len(COLUMNS)
    text = markdown_lines(lines)
    assert text[2] == "### Localization, given the true onset"
    assert all(any(line.startswith(f"- **{name}**") for line in text) for name, _ in COLUMNS[1:])


def test_without_agents_nothing_is_said() -> None:
    rows = [row(truth(0), "best", "method", ["a"])]
    assert agent_lines(score_episodes(rows), [], {}) == ()
    assert markdown_lines(()) == []
