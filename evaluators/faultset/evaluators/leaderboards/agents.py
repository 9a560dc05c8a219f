"""Results of agents: pass@1, pass^k and cost, compared with the best algorithm."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from faultset.agents.runs.record import AgentRun
from faultset.agents.runs.trajectory_contents import InspectedServices
from faultset.evaluators.leaderboards.records import GIVEN_ALARMS, TELEMETRY, AgentLine, is_headline
from faultset.evaluators.leaderboards.scores import EpisodeScores, Setting
from faultset.evaluators.leaderboards.texts import NONE, TextCell, TextColumn, TextTable
from faultset.evaluators.results.rows import NO_FAILURES, ResultRow
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.intervals import Estimate, clustered_mean, median_or_nan, unknown
from faultset.evaluators.scoring.paired_tests import paired_difference
from faultset.evaluators.scoring.registry import TASK_METRICS, score_correctness

_MIN_CORRECT_SCORE = 1.0 - 1e-9
_MIN_MEAN_SCORE = 0.5
_SOLVED = {
    (True, True): "both",
    (True, False): "agent alone",
    (False, True): "algorithm alone",
    (False, False): "neither",
}
ByEpisode = Mapping[str, Sequence[ResultRow]]


def agent_lines(
    scores: EpisodeScores, runs: Iterable[AgentRun], inspected: Mapping[str, InspectedServices], seed: int = 0
) -> tuple[AgentLine, ...]:
    """Return a line for each agent, task and protocol, by task and protocol, best agent first.

    `runs`: all runs; each row contains the ID of its run.
    `inspected`: run id -> services that it inspected, if known.
    """
    by_name = {run.run: run for run in runs}
    lines: list[AgentLine] = []
    for setting, by_case in sorted(scores.cases.items()) if by_name else ():
        if setting.protocol not in ("detected", "oracle"):
            continue
        answers = {name: {e: case.rows for e, case in cases.items()} for name, cases in by_case.items()}
        agents = {name: rows for name, rows in answers.items() if _is_agent(rows)}
        others = {name for name in answers if name not in agents and scores.groups[name] == TELEMETRY}
        best = _find_best(answers, setting, others)
        control = _find_best(answers, setting, {name for name in others if scores.is_control(name)})
        setting_lines = [_build_line(name, rows, setting, by_name, inspected, scores) for name, rows in agents.items()]
        setting_lines = [_add_comparison(line, answers, setting, best, control, seed) for line in setting_lines]
        lines += sorted(setting_lines, key=lambda line: (-line.pass_1.value, line.agent))
    return tuple(lines)


def _is_agent(episodes: ByEpisode) -> bool:
    return any("agent_run" in row.answer for rows in episodes.values() for row in rows)


def _select_scored(episodes: ByEpisode, task: str) -> dict[str, Sequence[ResultRow]]:
    """Return the scored episodes: with a headline fault and, for detection, also without a fault."""
    return {e: rows for e, rows in sorted(episodes.items()) if _is_scored_truth(rows[0].truth, task)}


def _is_scored_truth(truth: Truth, task: str) -> bool:
    if task == "detection":
        return not truth.faulty or is_headline(truth)
    return is_headline(truth) and TASK_METRICS[task].is_scorable(truth)


def _compute_means(episodes: ByEpisode, task: str) -> dict[str, float]:
    return {e: _compute_mean_right(rows) for e, rows in _select_scored(episodes, task).items()}


def _compute_mean_right(rows: Sequence[ResultRow]) -> float:
    return float(np.mean([score_correctness(row) for row in rows]))


def _find_best(answers: Mapping[str, ByEpisode], setting: Setting, names: Iterable[str]) -> str | None:
    values = {name: list(_compute_means(answers[name], setting.task).values()) for name in names}
    means = {name: float(np.mean(scores)) for name, scores in values.items() if scores}
    return min(means, key=lambda name: (-means[name], name)) if means else None


def _build_line(
    name: str,
    episodes: ByEpisode,
    setting: Setting,
    runs: Mapping[str, AgentRun],
    inspected: Mapping[str, InspectedServices],
    scores: EpisodeScores,
) -> AgentLine:
    scored = _select_scored(episodes, setting.task)
    rows = [row for attempts in scored.values() for row in attempts]
    keys = [str(row.answer.get("agent_run")) for row in rows]
    attempts = [runs[key] for key in keys if key in runs]
    inspections = [(inspected[key], row.truth) for key, row in zip(keys, rows, strict=True) if key in inspected]
    calls: Counter[str] = Counter()
    for services, _ in inspections:
        calls.update(services.calls)
    tool_calls = sum(run.tool_calls for run in attempts)
    costs = [run.cost_usd for run in attempts if run.cost_usd is not None]
    return AgentLine(
        agent=name,
        kind=scores.kinds[name],
        task=setting.task,
        protocol=setting.protocol,
        episodes=len(scored),
        trials=max(map(len, scored.values()), default=0),
        runs=len(attempts),
        pass_1=_estimate_share(scored, _compute_mean_right),
        pass_all=_estimate_share(
            scored, lambda trials: float(all(score_correctness(row) >= _MIN_CORRECT_SCORE for row in trials))
        ),
        without_harness_errors=_estimate_share_of(scored, lambda row: row.status != "harness_error"),
        fully_recorded=_estimate_share_of(scored, lambda row: _is_fully_recorded(row, runs)),
        seconds=median_or_nan(run.seconds for run in attempts if run.status == "ok"),
        steps=median_or_nan(run.steps for run in attempts),
        prompt_tokens=median_or_nan(run.prompt_tokens for run in attempts),
        completion_tokens=median_or_nan(run.completion_tokens for run in attempts),
        tokens_estimated=any(run.tokens_source == "estimated" for run in attempts),
        cost_usd=float(np.mean(costs)) if costs else math.nan,
        total_cost_usd=float(sum(costs)) if costs else math.nan,
        not_recorded=_divide(sum(run.not_recorded or 0 for run in attempts), tool_calls),
        refused=_divide(sum(run.refused or 0 for run in attempts), tool_calls),
        repeats=_divide(sum(run.repeats for run in attempts), tool_calls),
        statuses=dict(Counter(row.status for row in rows)),
        calls=dict(calls.most_common()),
        cause_requested=_share_with_cause(inspections, lambda services: services.requested),
        cause_observed=_share_with_cause(inspections, lambda services: services.observed),
    )


def _add_comparison(
    line: AgentLine,
    answers: Mapping[str, ByEpisode],
    setting: Setting,
    best: str | None,
    control: str | None,
    seed: int,
) -> AgentLine:
    """Add the best algorithm, the difference from it, and the strongest control."""
    first = _compute_means(answers[line.agent], setting.task)
    second = _compute_means(answers[best], setting.task) if best is not None else {}
    common = sorted(first.keys() & second.keys())
    keys = [answers[line.agent][e][0].truth.cluster for e in common]
    pair = paired_difference([first[e] for e in common], [second[e] for e in common], keys, seed) if common else None
    control_values = list(_compute_means(answers[control], setting.task).values()) if control is not None else []
    return replace(
        line,
        best_algorithm=best,
        best_value=float(np.mean([second[e] for e in common])) if common else math.nan,
        difference=None if pair is None else pair.difference,
        solved=dict(Counter(_SOLVED[first[e] > _MIN_MEAN_SCORE, second[e] > _MIN_MEAN_SCORE] for e in common)),
        strongest_control=control,
        control_value=float(np.mean(control_values)) if control_values else math.nan,
    )


def _estimate_share(episodes: ByEpisode, value: Callable[[Sequence[ResultRow]], float]) -> Estimate:
    keys = [rows[0].truth.cluster for rows in episodes.values()]
    return clustered_mean([value(rows) for rows in episodes.values()], keys)


def _estimate_share_of(episodes: ByEpisode, is_chosen: Callable[[ResultRow], bool]) -> Estimate:
    """Return the share of correct answers among the chosen rows; every episode has the same weight."""
    chosen = {e: choice for e, rows in episodes.items() if (choice := [row for row in rows if is_chosen(row)])}
    if not chosen:
        return unknown("no such run")
    return _estimate_share(chosen, _compute_mean_right)


def _is_fully_recorded(row: ResultRow, runs: Mapping[str, AgentRun]) -> bool:
    run = runs.get(row.answer.get("agent_run", ""))
    return run is not None and not run.not_recorded


def _share_with_cause(
    inspections: Sequence[tuple[InspectedServices, Truth]], names_of: Callable[[InspectedServices], frozenset[str]]
) -> float:
    """Return the share of runs on faulty episodes in which a request or an observation names a cause."""
    faulty = [(names_of(services), frozenset().union(*truth.causes)) for services, truth in inspections if truth.causes]
    return float(np.mean([bool(names & causes) for names, causes in faulty])) if faulty else math.nan


def _divide(count: int, total: int) -> float:
    return count / total if total else math.nan


TASKS = {"detection": "detection", "localization": "localization", "rca": "root cause"}
TIMES = {"detection": "TTD", "localization": "TTL", "rca": "TTA"}
COLUMNS = (
    ("agent", "name, with the model"),
    ("pass@1", "score of one attempt: mean over trials, then over episodes, with a 95 % interval"),
    ("all trials", "share of episodes in which every trial is right; with three trials pass^3"),
    ("best algorithm or control", "best method on the same episodes, and the difference from it"),
    ("time", "TTD, TTL or TTA as defined by AIOpsLab: median seconds of model and tools until the answer"),
    ("steps", "median number of messages with an action"),
    ("tokens", "medians of prompt and completion tokens of a run; ≈ if the server did not report them"),
    ("USD", "mean cost of a run according to its log"),
    ("not recorded", "share of requests that the recording could not answer, then share of refused requests"),
    ("repeats", "share of requests that repeat an earlier one at the same instant"),
    ("no answer", "attempts without a valid answer, by status"),
    ("clean runs", "pass@1 of runs without harness errors, then pass@1 of runs whose requests were all answered"),
    ("solved by", "episodes that the agent and the best algorithm get right in most attempts"),
    ("strongest control", "score of the best control on the same episodes"),
)
"""Title and meaning of each column."""


def title_of(line: AgentLine) -> str:
    """Return the task and the input of a line."""
    if line.task == "detection":
        return TASKS[line.task]
    return f"{TASKS[line.task]}, given the {GIVEN_ALARMS[line.protocol]}"


def build_agent_tables(lines: Sequence[AgentLine]) -> list[TextTable]:
    """Return a table for each task and protocol."""
    groups: dict[str, list[AgentLine]] = {}
    for line in lines:
        groups.setdefault(title_of(line), []).append(line)
    return [
        TextTable(
            title=title,
            columns=tuple(
                TextColumn(
                    title=TIMES[group[0].task] if name == "time" else name,
                    meaning=meaning,
                    justify="left" if name == "agent" else "right",
                    wraps=name.startswith("best"),
                )
                for name, meaning in COLUMNS
            ),
            rows=tuple(tuple(TextCell(text=text) for text in cells(line)) for line in group),
            kinds=tuple(line.kind for line in group),
        )
        for title, group in groups.items()
    ]


def cells(line: AgentLine) -> list[str]:
    """Return the text of each column."""
    missing = {status: n for status, n in sorted(line.statuses.items()) if status not in NO_FAILURES}
    return [
        line.agent,
        estimate_text(line.pass_1),
        estimate_text(line.pass_all, interval=False) + (f" of {line.trials}" if line.trials > 1 else ""),
        best_text(line),
        f"{line.seconds:.1f} s" if line.seconds == line.seconds else NONE,
        amount(line.steps),
        tokens_text(line),
        NONE if math.isnan(line.cost_usd) or line.prompt_tokens != line.prompt_tokens else f"{line.cost_usd:.4f}",
        f"{percent(line.not_recorded)} / {percent(line.refused)}",
        percent(line.repeats),
        ", ".join(f"{n} {status.replace('_', ' ')}" for status, n in missing.items()),
        f"{estimate_text(line.without_harness_errors, interval=False)} / "
        f"{estimate_text(line.fully_recorded, interval=False)}",
        ", ".join(f"{name} {count}" for name, count in sorted(line.solved.items())),
        NONE if line.strongest_control is None else f"{line.strongest_control} {line.control_value:.2f}",
    ]


def best_text(line: AgentLine) -> str:
    """Format the best algorithm with its value and the difference."""
    if line.best_algorithm is None:
        return "none was run"
    difference = line.difference
    difference_text = "" if difference is None or not difference.known else f" ({difference.value:+.2f})"
    return f"{line.best_algorithm} {line.best_value:.2f}{difference_text}"


def tokens_text(line: AgentLine) -> str:
    """Format prompt and completion tokens; a dash if they are unknown."""
    if math.isnan(line.prompt_tokens):
        return NONE
    mark = "≈" if line.tokens_estimated else ""
    return f"{mark}{amount(line.prompt_tokens)} + {mark}{amount(line.completion_tokens)}"


def estimate_text(estimate: Estimate, *, interval: bool = True) -> str:
    """Format a share with its interval."""
    if not estimate.known:
        return NONE
    brackets = f" [{estimate.low:.2f}, {estimate.high:.2f}]" if interval and estimate.interval_known else ""
    return f"{estimate.value:.2f}{brackets}"


def amount(value: float) -> str:
    """Format a count."""
    return NONE if math.isnan(value) else f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def percent(share: float) -> str:
    """Format a share in per cent."""
    return NONE if math.isnan(share) else f"{share:.0%}"


def markdown_lines(lines: Sequence[AgentLine]) -> list[str]:
    """Return the tables in Markdown; empty without agents."""
    if not lines:
        return []
    text = ["## Agents", ""]
    for table in build_agent_tables(lines):
        text += [f"### {table.title[0].upper()}{table.title[1:]}", "", *table.markdown(), ""]
    return [*text, *(f"- **{name}**: {meaning}." for name, meaning in COLUMNS[1:]), ""]
