"""Lines of agents as cells of text, the same on the terminal, in Markdown and in the report."""

from __future__ import annotations

import math
from collections.abc import Sequence

from faultset.evaluators.leaderboards.grids import Column, Grid
from faultset.evaluators.leaderboards.number_formats import NONE
from faultset.evaluators.leaderboards.records import GIVEN_ALARMS, AgentLine
from faultset.evaluators.results.rows import NO_FAILURES
from faultset.evaluators.statistics.estimates import Estimate

TASKS = {"detection": "detection", "localization": "localization", "rca": "root cause"}
_KIND_STYLES = {"control": "dim", "named": "bold"}
TIMES = {"detection": "TTD", "localization": "TTL", "rca": "TTA"}
COLUMNS = (
    ("agent", "name, with the model"),
    ("pass@1", "how right one attempt is: mean over trials, then over episodes, with a 95 % interval"),
    ("all trials", "share of episodes on which every trial is right; with three trials pass^3"),
    ("best algorithm or control", "the method that is right most often on the same episodes, and the difference to it"),
    ("time", "TTD, TTL or TTA as AIOpsLab counts: median seconds of model and tools from the question to an answer"),
    ("steps", "median of messages that act"),
    ("tokens", "medians of prompt and completion tokens of a run; ≈ where the server did not report them"),
    ("USD", "mean cost of a run, as the log states it"),
    ("not recorded", "share of requests that the recording could not answer; refused ones behind it"),
    ("repeats", "share of requests that were made before at the same moment"),
    ("no answer", "attempts without a scorable answer, by status"),
    ("clean runs", "pass@1 without errors of the harness, and of runs that asked for nothing which was not recorded"),
    ("solved by", "episodes that the agent and the best algorithm or control get right more often than not"),
    ("strongest control", "what the best control reaches on the same episodes"),
)
"""Head of each column, and what it means."""


def title_of(line: AgentLine) -> str:
    """Say what a group of lines is about."""
    if line.task == "detection":
        return TASKS[line.task]
    return f"{TASKS[line.task]}, given the {GIVEN_ALARMS[line.protocol]}"


def agent_grids(lines: Sequence[AgentLine]) -> list[Grid]:
    """Return a grid for each task and protocol."""
    groups: dict[str, list[AgentLine]] = {}
    for line in lines:
        groups.setdefault(title_of(line), []).append(line)
    return [
        Grid(
            title=title,
            columns=tuple(
                Column(
                    title=TIMES[group[0].task] if name == "time" else name,
                    meaning=meaning,
                    justify="left" if name == "agent" else "right",
                    wraps=name.startswith("best"),
                )
                for name, meaning in COLUMNS
            ),
            rows=tuple(tuple(cells(line)) for line in group),
            styles=tuple(_KIND_STYLES.get(line.kind) for line in group),
        )
        for title, group in groups.items()
    ]


def cells(line: AgentLine) -> list[str]:
    """Return a text for each column."""
    without = {status: n for status, n in sorted(line.statuses.items()) if status not in NO_FAILURES}
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
        ", ".join(f"{n} {status.replace('_', ' ')}" for status, n in without.items()),
        f"{estimate_text(line.without_harness_errors, interval=False)} / "
        f"{estimate_text(line.fully_recorded, interval=False)}",
        ", ".join(f"{name} {count}" for name, count in sorted(line.solved.items())),
        NONE if line.strongest_control is None else f"{line.strongest_control} {line.control_value:.2f}",
    ]


def best_text(line: AgentLine) -> str:
    """Name the best algorithm or control with its value and the difference."""
    if line.best_algorithm is None:
        return "none was run"
    difference = line.difference
    behind = "" if difference is None or not difference.known else f" ({difference.value:+.2f})"
    return f"{line.best_algorithm} {line.best_value:.2f}{behind}"


def tokens_text(line: AgentLine) -> str:
    """Return prompt and completion tokens; nothing for agents without a model."""
    if math.isnan(line.prompt_tokens):
        return NONE
    mark = "≈" if line.tokens_estimated else ""
    return f"{mark}{amount(line.prompt_tokens)} + {mark}{amount(line.completion_tokens)}"


def estimate_text(estimate: Estimate, *, interval: bool = True) -> str:
    """Write a share with its interval."""
    if not estimate.known:
        return NONE
    brackets = f" [{estimate.low:.2f}, {estimate.high:.2f}]" if interval and estimate.interval_known else ""
    return f"{estimate.value:.2f}{brackets}"


def amount(value: float) -> str:
    """Write a count."""
    return NONE if math.isnan(value) else f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def percent(share: float) -> str:
    """Write a share in per cent."""
    return NONE if math.isnan(share) else f"{share:.0%}"


def markdown_lines(lines: Sequence[AgentLine]) -> list[str]:
    """Return the tables in Markdown; nothing without an agent."""
    if not lines:
        return []
    text = ["## Agents", ""]
    for grid in agent_grids(lines):
        text += [f"### {grid.title[0].upper()}{grid.title[1:]}", "", *grid.markdown(), ""]
    return [*text, *(f"- **{name}**: {meaning}." for name, meaning in COLUMNS[1:]), ""]
