"""Read Inspect logs with Inspect's library: one run per sample and epoch.

Samples of faultset tasks contain their question and the session's report; `evaluate --agents` scores them. For other
samples, the score says whether the answer equals one of the sample's targets, ignoring case. Scores in the log are
kept as the recorded result.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultset.agents.formats.contract import ImportedRun, ImportOptions, SourceScore, files_below
from faultset.agents.runs.answers import ReadAnswer, build_run, decide_status, describe_cheating
from faultset.agents.runs.record import AGENT, QUESTION, REPORT, AgentRecord, AgentRun, AskedQuestion, RunTruth
from faultset.agents.trajectory import LIMIT_BYTES, FinalMetrics, TrajectoryWriter, jsonable
from faultset.core.errors import DataError
from faultset.core.files import canonical_json
from faultset.core.printable import printable, quoted
from faultset.core.regular_files import stat_regular_file

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample

_SPEAKERS = {"system": "system", "developer": "system", "user": "user"}


def add_messages(writer: TrajectoryWriter, messages: Sequence[Any], origin: str) -> None:
    """Add messages to a trajectory; tool results are added to the step that called the tool.

    Raises
    ------
    DataError
        A message is not an object or has an unknown role.
    """
    results = {m.get("tool_call_id"): m for m in messages if isinstance(m, dict) and m.get("role") == "tool"}
    for message in messages:
        role = message.get("role") if isinstance(message, dict) else None
        if role == "assistant":
            _add_step(writer, message, results)
        elif role in _SPEAKERS:
            writer.add_message(_SPEAKERS[role], content_text(message.get("content")))
        elif role != "tool":
            raise DataError(f"{origin} has a message with the unknown role {quoted(role)}; restore the file")


def _add_step(writer: TrajectoryWriter, message: Mapping[str, Any], results: Mapping[Any, Any]) -> None:
    calls, contents, failed = [], [], []
    tool_calls = message.get("tool_calls")
    for call in tool_calls if isinstance(tool_calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            continue
        calls.append((str(function.get("name", "")), _parse_arguments(function.get("arguments"))))
        key = call.get("id")
        result = results.get(key) if isinstance(key, str) else None
        contents.append(content_text(result.get("content")) if result else None)
        failed.append(bool(result and result.get("error")))
    reasoning = message.get("reasoning_content")
    writer.add_agent_step(
        content_text(message.get("content")),
        calls=calls,
        results=contents,
        errors=failed,
        reasoning=reasoning if isinstance(reasoning, str) else None,
    )


def _parse_arguments(value: Any) -> dict[str, Any]:
    """Return the arguments of a call, which models write as JSON text, sometimes invalid."""
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            return {"text": value}
        value = parsed
    return value if isinstance(value, dict) else {"value": value}


def content_text(content: Any) -> str:
    """Return the text of a message; its content may be a list of parts."""
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


_LIMITS = {
    "token": "token_limit",
    "context": "token_limit",
    "time": "timeout",
    "working": "timeout",
    "message": "step_limit",
    "turn": "step_limit",
    "cost": "cost_limit",
}
_LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_LABELS = "target in the log"


class InspectLogs:
    """Inspect logs, `*.eval` and `*.json`."""

    name = "inspect"
    title = "Inspect"

    def files(self, path: Path) -> Sequence[Path]:
        """Return the logs."""
        return files_below(path, lambda file: file.suffix in (".eval", ".json"), "a folder of Inspect's logs")

    def runs(self, file: Path, options: ImportOptions) -> Sequence[ImportedRun]:
        """Read the samples of one log."""
        from inspect_ai.log import read_eval_log

        stat_regular_file(file, limit_bytes=LIMIT_BYTES)
        log = read_eval_log(str(file), resolve_attachments=True)
        if not log.samples and log.status == "success":
            raise DataError(f"{printable(file)} holds no samples; give a complete log, not one with headers only")
        return [
            _build_run(self.name, log, sample, f"{file}, sample {sample.id}", options) for sample in log.samples or ()
        ]

    def score(self, run: AgentRun, truth: Mapping[str, Any]) -> SourceScore | None:
        """Compare the answer with the targets."""
        success = _normalise((run.answer or {}).get("text", "")) in {_normalise(target) for target in truth["targets"]}
        return SourceScore(success=success, value=float(success))

    def difference(self, run: AgentRun, truth: RunTruth, success: bool) -> str:
        """Name the log's scorer, whose rule differs from equality with a target."""
        names = ", ".join(truth.recorded.get("scores", {})) or "unknown"
        return f"the log's scorer ({names}) uses a rule other than equality with a target"


def _build_run(source: str, log: EvalLog, sample: EvalSample, origin: str, options: ImportOptions) -> ImportedRun:
    record = AgentRecord.model_validate(sample.store[AGENT]) if AGENT in sample.store else None
    question = AskedQuestion.model_validate(sample.metadata[QUESTION]) if QUESTION in sample.metadata else None
    name = record.name if record else log.eval.solver or "inspect"
    if question is not None and question.complaint:
        name = f"{name}, complaint"
    # controls call no model, even if the log names one
    model = None if record and record.kind == "control" else log.eval.model or options.model
    writer = TrajectoryWriter(options.agent or name, version=record.version if record else "unknown", model=model)
    add_messages(writer, [_build_message(message) for message in sample.messages], printable(origin))
    if not len(writer):
        writer.add_message("user", sample.input if isinstance(sample.input, str) else "")
    trajectory = writer.trajectory(session_id=sample.uuid, final_metrics=_build_usage(sample))
    limit = sample.limit.type if sample.limit else None
    fields = {
        "dataset": (log.eval.dataset.name or log.eval.task)[:500],
        "episode": str(sample.id)[:500],
        "task": "other",
        "trial": sample.epoch,
        "stop_reason": f"limit: {limit}" if limit else "error" if sample.error else None,
        "seconds": _get_duration_s(sample),
    }
    key = f"{sample.id}/{sample.epoch}"
    if question is None:
        text = sample.output.completion if sample.output else ""
        answer = ReadAnswer(status="ok", answer={"text": jsonable(text)}) if text and text.strip() else None
        stopped_by = _LIMITS.get(limit or "")
    else:
        # a retried evaluation keeps its task id, so that its samples replace those of the first attempt
        key = f"{log.eval.task_id}/{key}"
        report = sample.store.get(REPORT) or {}
        answer, stopped_by = _get_session_answer(report), _LIMITS.get(limit or "", report.get("stopped_by"))
        fields |= _get_session_fields(question, report, sample)
    if sample.error:
        reason = printable(sample.error.message.splitlines()[0][:300] if sample.error.message else "unknown")
        final = ReadAnswer(status="harness_error", reason=f"the sample ended in an error: {reason}")
    else:
        # tools of faultset tasks access neither files nor the injector
        cheats = describe_cheating if question is None else lambda trajectory: ""
        final = decide_status(trajectory, answer, stopped_by=stopped_by, cheats=cheats)
    run = build_run(source, trajectory, final, **fields)
    return ImportedRun(key=key, trajectory=trajectory, run=run, truth=_build_truth(sample, labelled=question is None))


def _get_session_answer(report: Mapping[str, Any]) -> ReadAnswer | None:
    """Return the answer in a session's report."""
    if not isinstance(report.get("answer"), dict):
        return None
    status = "invalid" if report.get("status") == "invalid" else "ok"
    return ReadAnswer(status=status, reason=str(report.get("status_reason", "")), answer=jsonable(report["answer"]))


def _get_session_fields(question: AskedQuestion, report: Mapping[str, Any], sample: EvalSample) -> dict[str, Any]:
    """Return the fields recorded in the metadata and store of a sample of a faultset task."""
    statuses = report.get("statuses") or {}
    counts = {name: statuses.get(name, 0) for name in ("not_recorded", "refused")}
    fields: dict[str, Any] = {
        "version": question.version,
        "task": question.task,
        "protocol": question.protocol,
        "trial": sample.epoch - 1,
        "alarm_ns": question.alarm_ns,
        "answered_ns": report.get("answered_ns"),
        "model_calls": sum(event.event == "model" for event in sample.events),
        "contamination": "unknown",
    }
    return fields | counts | {"repeats": report.get("repeats", 0), "tool_errors": statuses.get("invalid", 0)}


def _build_usage(sample: EvalSample) -> FinalMetrics:
    usage = list((sample.model_usage or {}).values())
    costs = [model.total_cost for model in usage if model.total_cost is not None]
    return FinalMetrics(
        total_prompt_tokens=_add_up([_count_prompt_tokens(model) for model in usage]),
        total_completion_tokens=_add_up([model.output_tokens for model in usage]),
        total_cached_tokens=_add_up([model.input_tokens_cache_read for model in usage]),
        total_cost_usd=sum(costs) if costs else None,
    )


def _get_duration_s(sample: EvalSample) -> float | None:
    """Return the working time of a sample, or its total time if the log has no working time."""
    seconds = sample.working_time if sample.working_time is not None else sample.total_time
    return None if seconds is None else float(seconds)


def _build_message(message: Any) -> dict[str, Any]:
    calls = getattr(message, "tool_calls", None) or ()
    error = getattr(message, "error", None)
    return {
        "role": message.role,
        "content": message.text if error is None else error.message,
        "tool_calls": [{"id": c.id, "function": {"name": c.function, "arguments": c.arguments}} for c in calls],
        "tool_call_id": getattr(message, "tool_call_id", None),
        "error": error is not None,
    }


def _count_prompt_tokens(usage: Any) -> int:
    """Return prompt tokens including cached ones, which Inspect counts separately."""
    return usage.input_tokens + (usage.input_tokens_cache_read or 0) + (usage.input_tokens_cache_write or 0)


def _add_up(values: Sequence[int | None]) -> int | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None


def _build_truth(sample: EvalSample, *, labelled: bool) -> RunTruth:
    """Return targets and scores; the targets of faultset tasks are not scored here."""
    targets = [] if not labelled else [sample.target] if isinstance(sample.target, str) else list(sample.target)
    targets = [target for target in targets if target.strip()]
    values = {name: score.value for name, score in (sample.scores or {}).items()}
    numbers = [number for value in values.values() if (number := _read_score(value)) is not None]
    value = numbers[0] if numbers else None
    return RunTruth(
        cluster=str(sample.id)[:500],
        label_version=_LABELS if targets else None,
        truth_json=canonical_json(jsonable({"targets": targets})) if targets else None,
        recorded_success=None if value is None else value == 1.0,
        recorded_value=value,
        recorded_json=canonical_json(jsonable({"scores": values})),
    )


def _read_score(value: Any) -> float | None:
    """Return the first score as a number from 0 to 1; letters mean correct, partial, incorrect, no answer."""
    if isinstance(value, dict):
        return _read_score(next(iter(value.values()), None))
    if isinstance(value, str):
        return _LETTERS.get(value)
    if isinstance(value, bool):
        return float(value)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) and 0 <= value <= 1 else None


def _normalise(text: Any) -> str:
    return text.strip().lower() if isinstance(text, str) else ""
