"""AIOpsLab's session files as runs."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from faultset.agents.formats.aiopslab.grammar import ActionCall, Grammar, grammar_at, parsed, submitted
from faultset.agents.formats.aiopslab.labels import (
    ProblemLabel,
    before,
    changes_since,
    label_of,
    task_of,
)
from faultset.agents.formats.aiopslab.scoring import scored, truth_of
from faultset.agents.formats.contract import ImportedRun, ImportOptions, OwnScore
from faultset.agents.formats.files import files_below
from faultset.agents.runs.answers import ReadAnswer, understood
from faultset.agents.runs.counting import counted_run
from faultset.agents.runs.record import AgentRun, RunTruth
from faultset.agents.runs.statuses import decided
from faultset.agents.trajectories.model import FinalMetrics, Trajectory
from faultset.agents.trajectories.reading import LIMIT_BYTES
from faultset.agents.trajectories.writing import TrajectoryWriter, jsonable, plain_text
from faultset.core.errors import DataError
from faultset.core.json_text import canonical_json
from faultset.core.printable import printable
from faultset.core.reading.documents import parse_object, validation_sentence
from faultset.core.reading.regular_files import read_regular

STEP_LIMITS = (30, 10)
"""Of the shipped clients, and of the service."""
_LATEST_S = 1e10
_PARAMETERS = {
    "exec_shell": ("command", "timeout"),
    "get_logs": ("namespace", "service"),
    "get_metrics": ("namespace", "duration"),
    "get_traces": ("namespace", "duration"),
    "read_metrics": ("file_path",),
    "read_traces": ("file_path",),
}
_ERRORS = (
    "Error parsing response:",
    "Invalid action:",
    "[ERROR]",
    "Error:",
    "error:",
    "DetectionActions.",
    "LocalizationActions.",
    "AnalysisActions.",
    "MitigationActions.",
)


class _Item(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    role: Literal["assistant", "env", "system", "user"]
    content: str | None = None


class _Session(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)

    agent: str | None = None
    session_id: str | None = None
    problem_id: str = Field(min_length=1, max_length=500)
    canonical_problem_id: str | None = None
    variant_context: dict[str, Any] | None = None
    start_time: float | None = Field(default=None, ge=0, le=_LATEST_S)
    end_time: float | None = Field(default=None, ge=0, le=_LATEST_S)
    trace: list[_Item] = Field(min_length=1)
    conversation: list[Any] | None = None
    results: dict[str, Any] = Field(default_factory=dict)


class AIOpsLabSessions:
    """Session files of AIOpsLab, `<session_id>_<start_time>.json`, and its service's answers."""

    name = "aiopslab"
    title = "AIOpsLab"

    def files(self, path: Path) -> Sequence[Path]:
        """Find the session files."""
        return files_below(path, lambda file: file.suffix == ".json", "a folder of AIOpsLab's session files")

    def runs(self, file: Path, options: ImportOptions) -> Sequence[ImportedRun]:
        """Read one session."""
        document = parse_object(read_regular(file, limit_bytes=LIMIT_BYTES), str(file))
        try:
            session = _Session.model_validate(document)
        except ValidationError as problem:
            raise DataError(f"{printable(file)}: {validation_sentence(problem)}; restore the file") from None
        problem_id = session.canonical_problem_id or session.problem_id
        grammar = grammar_at(session.start_time or 0.0)
        trajectory = _trajectory(session, grammar, options)
        task = task_of(problem_id)
        answer, as_source = _answer(session, grammar, task, options)
        found = decided(trajectory, answer, step_limits=STEP_LIMITS)
        run = counted_run(
            self.name,
            trajectory,
            found,
            episode=plain_text(session.problem_id),
            task=task,
            stop_reason="submitted" if answer else "ended without an answer",
            seconds=_seconds(session),
            started_ns=None if session.start_time is None else int(session.start_time * 1e9),
            model_calls=len(trajectory.agent_steps),
            **_estimated_tokens(session),
        )
        label = label_of(problem_id)
        return [ImportedRun(key="", trajectory=trajectory, run=run, truth=_truth(session, label, as_source))]

    def score(self, run: AgentRun, truth: Mapping[str, Any]) -> OwnScore | None:
        """Score an answer as AIOpsLab does, against its labels of today."""
        return scored(run.answer, ProblemLabel(**truth))

    def difference(self, run: AgentRun, truth: RunTruth, success: bool) -> str:
        """Find the change of a label, or the loss of an answer, that explains another result."""
        if truth.truth is None:
            return ""
        label = ProblemLabel(**truth.truth)
        for change in changes_since(label, (run.started_ns or 0) / 1e9) if run.started_ns else ():
            old = scored(run.answer, before(label, change))
            if old is not None and old.success == truth.recorded_success:
                return f"label changed on {change.day}: {change.what}"
        reading = understood(run.task, truth.recorded.get("answer_read_by_source"))
        old = scored(reading.answer if reading.status == "ok" else None, label)
        if old is not None and old.success == truth.recorded_success:
            return "AIOpsLab loses answers that are handed in by keyword"
        return ""


def _seconds(session: _Session) -> float | None:
    if session.start_time is None or session.end_time is None or session.end_time < session.start_time:
        return None
    return session.end_time - session.start_time


def _trajectory(session: _Session, grammar: Grammar, options: ImportOptions) -> Trajectory:
    writer = TrajectoryWriter(plain_text(session.agent or options.agent or "unknown"), model=options.model)
    prompt = _system_prompt(session.conversation)
    if prompt and session.trace[0].role == "assistant":
        writer.said("system", prompt)
    items = session.trace
    for place, item in enumerate(items):
        text = item.content or ""
        if item.role == "assistant":
            after = items[place + 1] if place + 1 < len(items) else None
            result = (after.content or "") if after is not None and after.role == "env" else None
            _act(writer, text, result, grammar)
        elif item.role != "env":
            writer.said(item.role, text)
        elif place == 0 or items[place - 1].role != "assistant":
            writer.said("user", text)
    final = FinalMetrics(total_steps=len(writer))
    return writer.trajectory(session_id=session.session_id, final_metrics=final)


def _act(writer: TrajectoryWriter, text: str, result: str | None, grammar: Grammar) -> None:
    call = parsed(text, grammar)
    results = None if result is None else [result]
    failed = [result is not None and result.startswith(_ERRORS)]
    if not isinstance(call, ActionCall):
        extra = {"faultset": {"unreadable_action": call.reason}}
        writer.acted(text, results=results, errors=failed, extra=extra)
        return
    names = _PARAMETERS.get(call.name, ())
    arguments = {names[i] if i < len(names) else f"argument_{i + 1}": value for i, value in enumerate(call.args)}
    writer.acted(text, calls=[(call.name, arguments | call.kwargs)], results=results, errors=failed)


def _answer(session: _Session, grammar: Grammar, task: str, options: ImportOptions) -> tuple[ReadAnswer | None, Any]:
    """Return the last answer that was handed in, and what AIOpsLab itself made of it."""
    for item in reversed(session.trace):
        if item.role != "assistant":
            continue
        call = parsed(item.content or "", grammar)
        if call.name != "submit":
            continue
        if not isinstance(call, ActionCall):
            return ReadAnswer(status="unparsed", reason=f"the submission cannot be read: {call.reason}"), None
        values = submitted(call)
        as_source = jsonable(call.args[0]) if call.args else []
        if not values and task != "mitigation":
            return ReadAnswer(status="invalid", reason="a submission without an answer"), as_source
        return understood(task, values[0] if values else None, options.candidates), as_source
    return None, None


def _estimated_tokens(session: _Session) -> dict[str, Any]:
    """Return the tokens that AIOpsLab states: its own count of the texts, each once, and not what a model was sent."""

    def count(name: str) -> int | None:
        value = session.results.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None

    tokens = {"prompt_tokens": count("in_tokens"), "completion_tokens": count("out_tokens")}
    known = any(value is not None for value in tokens.values())
    return {**tokens, "cached_tokens": None, "tokens_source": "estimated" if known else "none"}


def _truth(session: _Session, label: ProblemLabel | None, as_source: Any) -> RunTruth:
    results = session.results
    success = results.get("success")
    if "Detection Accuracy" in results:
        success = results["Detection Accuracy"] == "Correct"
    value = results.get("Localization Accuracy")
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 100
    return RunTruth(
        cluster=plain_text(label.cluster if label else session.problem_id)[:500],
        label_version=label.version if label else None,
        truth_json=canonical_json(truth_of(label)) if label else None,
        recorded_success=success if isinstance(success, bool) else None,
        recorded_value=float(value) / 100 if known and value is not None else None,
        recorded_json=canonical_json(jsonable({**results, "answer_read_by_source": as_source})),
    )


def _system_prompt(conversation: list[Any] | None) -> str:
    """Return the system prompt of sessions that keep their prompts as the text of a Python list."""
    first = conversation[0] if conversation else None
    text = first.get("prompt") if isinstance(first, dict) else None
    if not isinstance(text, str):
        return ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            messages = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return ""
    first = messages[0] if isinstance(messages, list) and messages else None
    found = first.get("content") if isinstance(first, dict) and first.get("role") == "system" else ""
    return found if isinstance(found, str) else ""
