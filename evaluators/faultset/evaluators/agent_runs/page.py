"""One run of an agent as a page of its own: no script, no network, everything from the run escaped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from faultset.agents import AgentRun, Trajectory
from faultset.agents.trajectory import TrajectoryStep, text_of
from faultset.core.errors import DataError
from faultset.core.files import replace_text, translate_write_errors
from faultset.core.printable import printable
from faultset.datasets import open_dataset
from faultset.evaluators.reports.figures.telemetry import Panel, panels, position, ticks
from faultset.evaluators.reports.templates import filled
from faultset.evaluators.results.truth import truth_of

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


@dataclass(frozen=True, kw_only=True)
class EpisodeTelemetry:
    """The telemetry of the episode that a run was about, on its time axis; places are percent of the view."""

    reference: float
    onset: float | None
    ticks: tuple[tuple[float, str], ...]
    panels: tuple[Panel, ...]


def write_run_page(
    trajectory: Trajectory, run: AgentRun | None, out: Path, *, dataset: Path | str | None = None
) -> None:
    """Write the page of a run.

    Parameters
    ----------
    run
        Its row, if there is one.
    out
        File to write or replace.
    dataset
        Dataset of the episode that the run was about; its telemetry stands above the steps.

    Raises
    ------
    DataError
        The run names no episode, or the dataset does not hold it.
    """
    telemetry = None if dataset is None else episode_telemetry(_episode(trajectory, run), dataset)
    text = run_page(trajectory, run, telemetry)
    with translate_write_errors(out):
        replace_text(out, text)


def _episode(trajectory: Trajectory, run: AgentRun | None) -> str:
    own = (trajectory.extra or {}).get("faultset")
    stated = own.get("episode") if isinstance(own, dict) else None
    name = run.episode if run and run.episode else stated
    if not isinstance(name, str):
        raise DataError("the run does not name the episode that it was about; leave the dataset away")
    return name


def episode_telemetry(episode: str, dataset: Path | str) -> EpisodeTelemetry:
    """Draw the telemetry of an episode; raise DataError for one that the dataset does not hold."""
    found = open_dataset(dataset)[episode]
    truth = truth_of(found.label, found.context)
    return EpisodeTelemetry(
        reference=position(truth.reference_end_ns, truth),
        onset=None if truth.onset_ns is None else position(truth.onset_ns, truth),
        ticks=ticks(truth),
        panels=panels(truth, Path(dataset)),
    )


def run_page(trajectory: Trajectory, run: AgentRun | None, telemetry: EpisodeTelemetry | None = None) -> str:
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
        telemetry=telemetry,
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
