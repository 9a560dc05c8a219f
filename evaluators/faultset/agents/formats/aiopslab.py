"""Import session files of AIOpsLab: the grammar of actions, the labels and their changes, the scores and the runs."""

from __future__ import annotations

import ast
import csv
import functools
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, date, datetime
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from faultset.agents.formats.contract import ImportedRun, ImportOptions, SourceScore, files_below, get_data_suffix
from faultset.agents.runs.answers import ReadAnswer, build_run, decide_status, interpret_answer
from faultset.agents.runs.record import AgentRun, RunTruth
from faultset.agents.trajectory import LIMIT_BYTES, FinalMetrics, Trajectory, TrajectoryWriter, jsonable, plain_text
from faultset.core.documents import parse_object, validation_sentence
from faultset.core.errors import DataError
from faultset.core.files import canonical_json
from faultset.core.printable import printable
from faultset.core.regular_files import read_unpacked

LABEL_VERSION = "AIOpsLab ddf7e406 (2026-11-22)"
"""Source of `aiopslab_labels.csv`, the answers that AIOpsLab's problems expect (MIT licence, commit ddf7e406). An empty
cell means that a label is unknown or does not apply."""
RULE_VERSION = "rule: every problem but noop has a fault"
TASK_WORDS = {name: name for name in ("detection", "localization", "mitigation")} | {"analysis": "diagnosis"}


@dataclass(frozen=True, kw_only=True)
class ProblemLabel:
    """The expected answer to one problem."""

    stem: str
    task: str
    app: str = ""
    fault: bool
    service: str = ""
    alias: str = ""
    """Another service that counts as correct."""
    system_level: str = ""
    fault_type: str = ""
    version: str = LABEL_VERSION

    @property
    def cluster(self) -> str:
        """Return the fault and its target; problems that share both are not independent."""
        return f"{self.app}/{self.stem}/{self.service}"


@dataclass(frozen=True)
class LabelChange:
    """One change of labels in the source."""

    day: date
    stems: tuple[str, ...]
    task: str
    description: str


CHANGES = (
    LabelChange(
        date(2025, 10, 11),
        ("revoke_auth_mongodb", "user_unregistered_mongodb"),
        "localization",
        "the service that owns the store is also accepted",
    ),
    LabelChange(
        date(2025, 11, 6),
        ("auth_miss_mongodb",),
        "diagnosis",
        "the system level changed from Virtualization to Application",
    ),
)


def task_of(problem_id: str) -> str:
    """Return the task named in a problem id, in faultset's terms; `other` if there is none.

    Ids cannot be split at hyphens, because their first parts may contain hyphens, and `noop_detection_<app>-1` has the
    task in the middle.
    """
    words = re.findall("|".join(TASK_WORDS), problem_id)
    return TASK_WORDS[words[-1]] if words else "other"


@functools.cache
def _read_labels() -> dict[str, ProblemLabel]:
    text = (resources.files("faultset.agents.formats") / "aiopslab_labels.csv").read_text("utf-8")
    return {
        row["problem_id"]: ProblemLabel(
            stem=row["stem"],
            task=TASK_WORDS[row["task"]],
            app=row["app"],
            fault=row["expected_detection"] == "Yes",
            service=row["faulty_service"],
            alias=row["accepted_alias"],
            system_level=row["system_level"],
            fault_type=row["fault_type"],
        )
        for row in csv.DictReader(text.splitlines())
    }


def label_of(problem_id: str) -> ProblemLabel | None:
    """Return the current label of a problem.

    The label of an unknown id says only whether there is a fault. An id without a task has no label.
    """
    label = _read_labels().get(problem_id)
    task = task_of(problem_id)
    if label is not None or task == "other":
        return label
    stem = re.sub(rf"[-_]({'|'.join(TASK_WORDS)}).*", "", problem_id)
    return ProblemLabel(stem=stem, task=task, fault="noop" not in problem_id, version=RULE_VERSION)


def find_changes_since(label: ProblemLabel, time_s: float) -> list[LabelChange]:
    """Return the changes of a label since a time."""
    day = datetime.fromtimestamp(time_s, UTC).date()
    return [
        change for change in CHANGES if label.stem in change.stems and label.task == change.task and day < change.day
    ]


def undo_change(label: ProblemLabel, change: LabelChange) -> ProblemLabel:
    """Return the label as it was before a change."""
    if change.task == "localization":
        return replace(label, alias="")
    return replace(label, system_level="Virtualization")


Grammar = Literal["old", "new"]
NEW_GRAMMAR_S = datetime(2025, 9, 23, tzinfo=UTC).timestamp()
"""When AIOpsLab introduced the new grammar."""
NO_CALL = "No API call found!"
ONE_BLOCK = "Format validation failure: the reply must have exactly one code block"
UNQUOTED_COMMAND = "commands must be quoted strings"
UNSUPPORTED_VALUE = "unsupported value in a call"
_MAX_CALL_LENGTH = 1_000_000
_OLD_BLOCK = re.compile(r"```\w*[ \t]*\n(.*?)```", re.DOTALL)
_NEW_BLOCK = re.compile(r"```(.*?)```", re.DOTALL)
_FUNCTION_NAME = re.compile(r"\s*([A-Za-z_]\w*)\s*\(")


@dataclass(frozen=True)
class ActionCall:
    """An action as parsed by the environment."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ActionError:
    """A message that the environment could not parse as a call."""

    reason: str
    name: str = ""
    """The function, if it was recognised."""


def choose_grammar(time_s: float) -> Grammar:
    return "new" if time_s >= NEW_GRAMMAR_S else "old"


def parse_action(text: str, grammar: Grammar) -> ActionCall | ActionError:
    """Parse the action in a message.

    Examples
    --------
    >>> parse_action('I look.\\n```\\nget_logs("ns", "geo")\\n```', "new")
    ActionCall(name='get_logs', args=('ns', 'geo'), kwargs={})
    """
    code = _extract_code(text, grammar)
    if isinstance(code, ActionError):
        return code
    match = _FUNCTION_NAME.match(code)
    if match is None:
        return ActionError(NO_CALL)
    if match[1] == "exec_shell":
        return _parse_shell_call(code)
    try:
        return _parse_call(code)
    except _Unsupported as problem:
        return ActionError(str(problem), match[1])


def read_submission(call: ActionCall) -> tuple[Any, ...]:
    """Return the value that a call of `submit` passes: its first argument, or its only keyword argument."""
    if call.args:
        return call.args[:1]
    return tuple(call.kwargs.values()) if len(call.kwargs) == 1 else ()


def _extract_code(text: str, grammar: Grammar) -> str | ActionError:
    if grammar == "old":
        block = _OLD_BLOCK.search(text)
        return block[1].strip() if block else ActionError(NO_CALL)
    blocks = _NEW_BLOCK.findall(text)
    if len(blocks) != 1 or not blocks[0].startswith("\n"):
        return ActionError(ONE_BLOCK)
    return blocks[0].strip()


def _parse_shell_call(code: str) -> ActionCall | ActionError:
    inside = code[code.index("(") + 1 : code.rindex(")")].strip() if ")" in code else ""
    inside = re.sub(r"^command\s*=\s*", "", inside)
    quote = inside[:1]
    if len(inside) < 2 or quote not in ("'", '"') or not inside.endswith(quote):
        return ActionError(UNQUOTED_COMMAND, "exec_shell")
    return ActionCall("exec_shell", (inside.strip(quote).replace(f"\\{quote}", quote),))


class _Unsupported(ValueError):
    pass


def _parse_call(code: str) -> ActionCall:
    if len(code) > _MAX_CALL_LENGTH:
        raise _Unsupported(f"a call of {len(code):,} characters")
    try:
        with warnings.catch_warnings():
            # the agent's text may have invalid escape sequences
            warnings.simplefilter("ignore")
            node = ast.parse(code, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _Unsupported("not a Python call") from None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise _Unsupported("not a Python call")
    kwargs = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise _Unsupported(UNSUPPORTED_VALUE)
        kwargs[keyword.arg] = _read_value(keyword.value)
    return ActionCall(node.func.id, tuple(_read_value(arg) for arg in node.args), kwargs)


def _read_value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [_read_value(element) for element in node.elts]
    if isinstance(node, ast.Dict) and None not in node.keys:
        keys = [_read_value(key) for key in node.keys if key is not None]
        if all(isinstance(key, str | int | float | bool) for key in keys):
            return dict(zip(keys, map(_read_value, node.values), strict=True))
    raise _Unsupported(UNSUPPORTED_VALUE)


def score_answer(answer: Mapping[str, Any] | None, label: ProblemLabel) -> SourceScore | None:
    """Score an answer; None if the label does not contain the correct answer.

    A localization succeeds only if the list contains the correct service and no other. A list of n services that
    contains the correct one scores 1/n.
    """
    answer = answer or {}
    if label.task == "detection":
        is_correct = answer.get("fault") == label.fault
        return SourceScore(success=is_correct, value=float(is_correct))
    if label.task == "localization" and label.service:
        return _score_localization(answer.get("services"), [name for name in (label.service, label.alias) if name])
    if label.task == "diagnosis" and label.system_level and label.fault_type:
        level = _is_same_word(answer.get("system_level"), label.system_level)
        kind = _is_same_word(answer.get("fault_type"), label.fault_type)
        parts = {"system_level": float(level), "fault_type": float(kind)}
        return SourceScore(success=level and kind, value=(level + kind) / 2, parts=parts)
    return None


def _score_localization(services: Any, accepted: list[str]) -> SourceScore:
    names = services if isinstance(services, list) else []
    if any(names == [name] for name in accepted):
        return SourceScore(success=True, value=1.0)
    partial = any(name in names for name in accepted)
    return SourceScore(success=False, value=1 / len(names) if partial else 0.0, parts={"is_subset": float(partial)})


def _is_same_word(answer: Any, expected: str) -> bool:
    return isinstance(answer, str) and answer.strip().lower() == expected.strip().lower()


STEP_LIMITS = (30, 10)
"""Step limits of the shipped clients and of the service."""
_MAX_TIME_S = 1e10
_PARAMETERS = {
    "exec_shell": ("command", "timeout"),
    "get_logs": ("namespace", "service"),
    "get_metrics": ("namespace", "duration"),
    "get_traces": ("namespace", "duration"),
    "read_metrics": ("file_path",),
    "read_traces": ("file_path",),
}
_ERROR_PREFIXES = (
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
    start_time: float | None = Field(default=None, ge=0, le=_MAX_TIME_S)
    end_time: float | None = Field(default=None, ge=0, le=_MAX_TIME_S)
    trace: list[_Item] = Field(min_length=1)
    conversation: list[Any] | None = None
    results: dict[str, Any] = Field(default_factory=dict)


class AIOpsLabSessions:
    """Session files of AIOpsLab, `<session_id>_<start_time>.json`, and sessions returned by its HTTP service."""

    name = "aiopslab"
    title = "AIOpsLab"

    def files(self, path: Path) -> Sequence[Path]:
        """Return the session files."""
        return files_below(path, lambda file: get_data_suffix(file) == ".json", "a folder of AIOpsLab's session files")

    def runs(self, file: Path, options: ImportOptions) -> Sequence[ImportedRun]:
        """Read one session."""
        document = parse_object(read_unpacked(file, limit_bytes=LIMIT_BYTES), str(file))
        try:
            session = _Session.model_validate(document)
        except ValidationError as problem:
            sentence = validation_sentence(problem)
            raise DataError(f"{printable(file)} is not a session of AIOpsLab: {sentence}; give another file") from None
        problem_id = session.canonical_problem_id or session.problem_id
        grammar = choose_grammar(session.start_time or 0.0)
        trajectory = _build_trajectory(session, grammar, options)
        task = task_of(problem_id)
        answer, source_reading = _find_answer(session, grammar, task, options)
        run = build_run(
            self.name,
            trajectory,
            decide_status(trajectory, answer, step_limits=STEP_LIMITS),
            episode=plain_text(session.problem_id),
            task=task,
            stop_reason="submitted" if answer else "ended without an answer",
            seconds=_get_duration_s(session),
            started_ns=None if session.start_time is None else int(session.start_time * 1e9),
            model_calls=len(trajectory.agent_steps),
            **_estimated_tokens(session),
        )
        label = label_of(problem_id)
        return [ImportedRun(key="", trajectory=trajectory, run=run, truth=_build_truth(session, label, source_reading))]

    def score(self, run: AgentRun, truth: Mapping[str, Any]) -> SourceScore | None:
        """Score an answer as AIOpsLab does, by its current labels."""
        return score_answer(run.answer, ProblemLabel(**truth))

    def difference(self, run: AgentRun, truth: RunTruth, success: bool) -> str:
        """Return the change of the label, or the ignored answer, that explains a different result."""
        if truth.truth is None:
            return ""
        label = ProblemLabel(**truth.truth)
        for change in find_changes_since(label, (run.started_ns or 0) / 1e9) if run.started_ns else ():
            old = score_answer(run.answer, undo_change(label, change))
            if old is not None and old.success == truth.recorded_success:
                return f"label changed on {change.day}: {change.description}"
        reading = interpret_answer(run.task, truth.recorded.get("answer_read_by_source"))
        old = score_answer(reading.answer if reading.status == "ok" else None, label)
        if old is not None and old.success == truth.recorded_success:
            return "AIOpsLab ignores answers passed by keyword"
        return ""


def _get_duration_s(session: _Session) -> float | None:
    if session.start_time is None or session.end_time is None or session.end_time < session.start_time:
        return None
    return session.end_time - session.start_time


def _build_trajectory(session: _Session, grammar: Grammar, options: ImportOptions) -> Trajectory:
    writer = TrajectoryWriter(plain_text(session.agent or options.agent or "unknown"), model=options.model)
    prompt = _system_prompt(session.conversation)
    if prompt and session.trace[0].role == "assistant":
        writer.add_message("system", prompt)
    items = session.trace
    for position, item in enumerate(items):
        text = item.content or ""
        if item.role == "assistant":
            following = items[position + 1] if position + 1 < len(items) else None
            result = (following.content or "") if following is not None and following.role == "env" else None
            _add_step(writer, text, result, grammar)
        elif item.role != "env":
            writer.add_message(item.role, text)
        elif position == 0 or items[position - 1].role != "assistant":
            writer.add_message("user", text)
    final = FinalMetrics(total_steps=len(writer))
    return writer.trajectory(session_id=session.session_id, final_metrics=final)


def _add_step(writer: TrajectoryWriter, text: str, result: str | None, grammar: Grammar) -> None:
    call = parse_action(text, grammar)
    results = None if result is None else [result]
    failed = [result is not None and result.startswith(_ERROR_PREFIXES)]
    if not isinstance(call, ActionCall):
        extra = {"faultset": {"unreadable_action": call.reason}}
        writer.add_agent_step(text, results=results, errors=failed, extra=extra)
        return
    names = _PARAMETERS.get(call.name, ())
    arguments = {names[i] if i < len(names) else f"argument_{i + 1}": value for i, value in enumerate(call.args)}
    writer.add_agent_step(text, calls=[(call.name, arguments | call.kwargs)], results=results, errors=failed)


def _find_answer(
    session: _Session, grammar: Grammar, task: str, options: ImportOptions
) -> tuple[ReadAnswer | None, Any]:
    """Return the last submitted answer, and the value that AIOpsLab read from it."""
    for item in reversed(session.trace):
        if item.role != "assistant":
            continue
        call = parse_action(item.content or "", grammar)
        if call.name != "submit":
            continue
        if not isinstance(call, ActionCall):
            return ReadAnswer(status="unparsed", reason=f"the submission cannot be read: {call.reason}"), None
        values = read_submission(call)
        source_reading = jsonable(call.args[0]) if call.args else []
        if not values and task != "mitigation":
            return ReadAnswer(status="invalid", reason="a submission without an answer"), source_reading
        return interpret_answer(task, values[0] if values else None, options.candidates), source_reading
    return None, None


def _estimated_tokens(session: _Session) -> dict[str, Any]:
    """Return AIOpsLab's token counts, which count each text once rather than every model input."""

    def count(name: str) -> int | None:
        value = session.results.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None

    tokens = {"prompt_tokens": count("in_tokens"), "completion_tokens": count("out_tokens")}
    source = "estimated" if any(value is not None for value in tokens.values()) else "none"
    return {**tokens, "cached_tokens": None, "tokens_source": source}


def _build_truth(session: _Session, label: ProblemLabel | None, source_reading: Any) -> RunTruth:
    results = session.results
    success = results.get("success")
    if "Detection Accuracy" in results:
        success = results["Detection Accuracy"] == "Correct"
    value = results.get("Localization Accuracy")
    valid = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 100
    return RunTruth(
        cluster=plain_text(label.cluster if label else session.problem_id)[:500],
        label_version=label.version if label else None,
        truth_json=canonical_json(asdict(label)) if label else None,
        recorded_success=success if isinstance(success, bool) else None,
        recorded_value=float(value) / 100 if valid and value is not None else None,
        recorded_json=canonical_json(jsonable({**results, "answer_read_by_source": source_reading})),
    )


def _system_prompt(conversation: list[Any] | None) -> str:
    """Return the system prompt of sessions that store their prompts as the text of a Python list."""
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
    content = first.get("content") if isinstance(first, dict) and first.get("role") == "system" else ""
    return content if isinstance(content, str) else ""
