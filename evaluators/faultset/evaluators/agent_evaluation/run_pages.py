"""Recorded runs of LLM agents as tables with intervals, and single runs as pages."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faultset.agents import AgentRun, Trajectory
from faultset.agents.imports import ScoredRun
from faultset.agents.trajectory import TrajectoryStep, text_of
from faultset.core.files import replace_text, translate_write_errors
from faultset.core.printable import printable
from faultset.evaluators.reports.templates import filled
from faultset.evaluators.statistics.intervals import Estimate, clustered_mean, unknown

FOLDED_CHARACTERS = 1200
"""Longer texts are folded."""
_BEGINNING = 90


@dataclass(frozen=True, kw_only=True)
class PageText:
    """A text of a step."""

    kind: str
    title: str
    content: str
    rest: bool
    """Whether it is folded."""
    begins: str


@dataclass(frozen=True, kw_only=True)
class PageStep:
    """A step as the page shows it."""

    number: int
    source: str
    note: str
    texts: tuple[PageText, ...]


def write_run_page(trajectory: Trajectory, run: AgentRun | None, out: Path) -> None:
    """Write the page of a run, with the facts of its row if there is one, into a file."""
    text = run_page(trajectory, run)
    with translate_write_errors(out):
        replace_text(out, text)


def run_page(trajectory: Trajectory, run: AgentRun | None) -> str:
    """Return the page of a run as HTML."""
    agent = trajectory.agent
    title = f"{agent.name} on {run.episode}" if run and run.episode else agent.name
    answer = json.dumps(run.answer, indent=1, ensure_ascii=False) if run and run.answer is not None else ""
    return filled(
        "agent_run.html.j2",
        title=printable(title),
        subtitle=printable(agent.model_name or ""),
        facts=_facts(trajectory, run),
        answer=_shown(answer),
        steps=[_step(step) for step in trajectory.steps],
    )


def _facts(trajectory: Trajectory, run: AgentRun | None) -> list[tuple[str, str]]:
    found = [("steps", f"{len(trajectory.steps):,}")]
    if run is None:
        return found
    tokens = {"prompt tokens": run.prompt_tokens, "completion tokens": run.completion_tokens}
    approximate = "≈ " if run.tokens_source == "estimated" else ""
    found = [
        ("status", f"{run.status}: {run.status_reason}" if run.status_reason else run.status),
        ("source", run.format),
        ("task", run.task),
        *found,
        ("calls", f"{run.tool_calls:,}, of them {run.tool_errors:,} errors"),
        ("repeats", f"{run.repeats:,}"),
        *((name, f"{approximate}{count:,}") for name, count in tokens.items() if count is not None),
    ]
    if run.seconds is not None:
        found.append(("seconds", f"{run.seconds:,.1f}"))
    return [(name, printable(value)) for name, value in found]


def _step(step: TrajectoryStep) -> PageStep:
    notes = [step.timestamp or "", step.model_name or ""]
    if step.metrics and step.metrics.completion_tokens is not None:
        notes.append(f"{step.metrics.completion_tokens:,} tokens")
    note = printable(" · ".join(one for one in notes if one))
    return PageStep(number=step.step_id, source=step.source, note=note, texts=tuple(_texts(step)))


def _texts(step: TrajectoryStep) -> Iterator[PageText]:
    if step.reasoning_content:
        yield _text("small", "reasoning", step.reasoning_content)
    yield _text("", "", step.text)
    for call in step.tool_calls or ():
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        yield _text("call", "call", f"{call.function_name} {arguments}")
    for result in step.observation.results if step.observation else ():
        failed = bool(result.extra and result.extra.get("error"))
        yield _text("bad" if failed else "", "error" if failed else "result", text_of(result.content))


def _text(kind: str, title: str, content: str) -> PageText:
    rest = len(content) > FOLDED_CHARACTERS
    begins = printable(content[:_BEGINNING].replace("\n", " ")) if rest else ""
    if rest:
        title = f"{title or 'message'}, {len(content):,} characters"
    return PageText(kind=kind, title=title, content=_shown(content), rest=rest, begins=begins)


def _shown(text: str) -> str:
    return "\n".join(printable(line.expandtabs(4)) for line in text.split("\n"))


Pair = tuple[str, str]
_HARNESS = "harness_error"


@dataclass(frozen=True, kw_only=True)
class AgentRow:
    """The runs of one agent with one model at one task, all of one source."""

    source: str
    agent: str
    model: str | None
    task: str
    runs: int
    statuses: Mapping[str, int]
    label_versions: tuple[str, ...]
    recorded: Estimate
    """Share of successes that the source recorded, of the runs of which it says."""
    success: Estimate
    """Share of successes by the source's labels of today; runs of broken harnesses are misses."""
    success_without_harness_errors: Estimate
    """The same without those runs."""
    value: Estimate
    """Mean of the partial scores."""
    control: str
    """What answers without looking: `always-yes` or `constant-pair`; empty where there is none."""
    control_success: Estimate
    """What the control reaches on the same runs."""
    found: Estimate
    """Detection: share of the runs with a fault in which one is claimed."""
    false_alarms: Estimate
    """Detection: share of the runs without a fault in which one is claimed."""
    agree: int
    compared: int
    """Runs with both a recorded result and one of ours, and how many of them are equal."""
    from_text: int
    """Runs in which services were found in free text."""
    steps: float
    """Median."""
    prompt_tokens: float | None
    """Median of the runs that state them."""


@dataclass(frozen=True, kw_only=True)
class ResultDifference:
    """Runs whose recorded result is not ours, for one reason."""

    source: str
    reason: str
    runs: tuple[str, ...]


def agent_rows(scored: Sequence[ScoredRun]) -> list[AgentRow]:
    """Return a row for every source, agent, model and task, in that order."""
    groups: dict[tuple[str, str, str, str], list[ScoredRun]] = {}
    for one in scored:
        key = (one.run.format, one.run.agent, one.run.model or "", one.run.task)
        groups.setdefault(key, []).append(one)
    return [_row(runs) for _, runs in sorted(groups.items())]


def result_differences(scored: Sequence[ScoredRun]) -> list[ResultDifference]:
    """Return why results differ from the recorded ones, most frequent reasons first."""
    groups: dict[tuple[str, str], list[str]] = {}
    for one in scored:
        if one.agrees is False:
            key = (one.run.format, one.difference or "not explained")
            groups.setdefault(key, []).append(one.run.run)
    found = [ResultDifference(source=k[0], reason=k[1], runs=tuple(runs)) for k, runs in groups.items()]
    return sorted(found, key=lambda one: (one.source, -len(one.runs), one.reason))


def _share(runs: Sequence[ScoredRun], value: Callable[[ScoredRun], float | None]) -> Estimate:
    known = [(found, one.truth.cluster) for one in runs if (found := value(one)) is not None]
    if not known:
        return unknown("not scored")
    return clustered_mean([float(found) for found, _ in known], [cluster for _, cluster in known])


def _row(runs: Sequence[ScoredRun]) -> AgentRow:
    first = runs[0].run
    sound = [one for one in runs if one.run.status != _HARNESS]
    compared = [one for one in runs if one.agrees is not None]
    tokens = [one.run.prompt_tokens for one in runs if one.run.prompt_tokens is not None]
    control, of_control = _control(first.task, runs)
    return AgentRow(
        source=first.format,
        agent=first.agent,
        model=first.model,
        task=first.task,
        runs=len(runs),
        statuses=dict(Counter(one.run.status for one in runs).most_common()),
        label_versions=tuple(sorted({one.truth.label_version for one in runs if one.truth.label_version})),
        recorded=_share(runs, lambda one: one.truth.recorded_success),
        success=_share(runs, lambda one: one.success),
        success_without_harness_errors=_share(sound, lambda one: one.success),
        value=_share(runs, lambda one: one.value),
        control=control,
        control_success=of_control,
        found=_claimed(runs, fault=True),
        false_alarms=_claimed(runs, fault=False),
        agree=sum(bool(one.agrees) for one in compared),
        compared=len(compared),
        from_text=sum("free text" in one.run.status_reason and one.run.status == "ok" for one in runs),
        steps=float(statistics.median(one.run.steps for one in runs)),
        prompt_tokens=float(statistics.median(tokens)) if tokens else None,
    )


def _truth(one: ScoredRun) -> Mapping[str, Any]:
    return (one.truth.truth or {}) if one.success is not None else {}


def _claimed(runs: Sequence[ScoredRun], *, fault: bool) -> Estimate:
    """Return how often a fault is claimed, of the detection runs with or without one."""
    if runs[0].run.task != "detection":
        return unknown("only of detection")
    chosen = [one for one in runs if _truth(one).get("fault") is fault]
    return _share(chosen, lambda one: (one.run.answer or {}).get("fault") is True)


def _control(task: str, runs: Sequence[ScoredRun]) -> tuple[str, Estimate]:
    labelled = [one for one in runs if _truth(one)]
    if task == "detection":
        return "always-yes", _share(labelled, lambda one: _truth(one).get("fault") is True)
    if task == "diagnosis":
        return "constant-pair", _share(labelled, lambda one: _constant_pair_is_right(one, labelled))
    return "", unknown("no control for this task")


def _pair(one: ScoredRun) -> Pair:
    truth = _truth(one)
    return str(truth.get("system_level", "")).lower(), str(truth.get("fault_type", "")).lower()


def _constant_pair_is_right(one: ScoredRun, labelled: Sequence[ScoredRun]) -> float | None:
    """Say whether the commonest pair of the other clusters is right; ties share. None without other clusters."""
    pairs = {other.truth.cluster: _pair(other) for other in labelled if other.truth.cluster != one.truth.cluster}
    if not pairs:
        return None
    counted = Counter(pairs.values())
    most = max(counted.values())
    best = [pair for pair, count in counted.items() if count == most]
    return float(_pair(one) in best) / len(best)
