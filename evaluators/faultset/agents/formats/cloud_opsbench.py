"""Cloud-OpsBench's run logs: a JSON file for each case, written again after every step.

The truth stands in the agent's own log; it goes into the table of truths and not into the trajectory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from faultset.agents.formats.contract import ImportedRun, ImportOptions, OwnScore
from faultset.agents.formats.files import files_below
from faultset.agents.runs.answers import ReadAnswer
from faultset.agents.runs.counting import counted_run
from faultset.agents.runs.record import AgentRun, RunTruth
from faultset.agents.runs.statuses import decided
from faultset.agents.trajectories.model import StepMetrics, Trajectory
from faultset.agents.trajectories.reading import LIMIT_BYTES
from faultset.agents.trajectories.writing import TrajectoryWriter, jsonable
from faultset.core.errors import DataError
from faultset.core.json_text import canonical_json
from faultset.core.printable import printable
from faultset.core.reading.documents import parse_object, validation_sentence
from faultset.core.reading.regular_files import read_regular

_FIELDS = ("fault_taxonomy", "fault_object", "root_cause")
_LABELS = "ground truth in the log"


class _LogStep(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    raw_model_output: str | None = None
    thought: str | None = None
    action_type: Literal["tool", "finish", "invalid"] = "invalid"
    action_name: str | None = None
    action_input: Any = None
    observation: Any = None
    error: Any = None
    model_latency: float | None = Field(default=None, ge=0)
    tool_latency: float | None = Field(default=None, ge=0)
    input_tokens: int | None = Field(default=None, ge=0, lt=2**53)
    output_tokens: int | None = Field(default=None, ge=0, lt=2**53)


class _CaseLog(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    case_id: str | int
    system_name: str | None = None
    question: str | None = None
    max_steps: int | None = Field(default=None, ge=0)
    finished: bool | None = None
    final_answer: Any = None
    stop_reason: str | None = None
    ground_truth: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    steps: list[_LogStep]


class CloudOpsBenchLogs:
    """Run logs of Cloud-OpsBench."""

    name = "cloud-opsbench"
    title = "Cloud-OpsBench"

    def files(self, path: Path) -> Sequence[Path]:
        """Find the logs."""
        return files_below(path, lambda file: file.suffix == ".json", "a folder of Cloud-OpsBench's run logs")

    def runs(self, file: Path, options: ImportOptions) -> Sequence[ImportedRun]:
        """Read the log of one case."""
        document = parse_object(read_regular(file, limit_bytes=LIMIT_BYTES), str(file))
        try:
            log = _CaseLog.model_validate(document)
        except ValidationError as problem:
            raise DataError(f"{printable(file)}: {validation_sentence(problem)}; restore the file") from None
        trajectory = _trajectory(log, options)
        stopped_by = "step_limit" if log.stop_reason == "max_steps" else None
        found = decided(trajectory, _answer(log.final_answer), stopped_by=stopped_by)
        run = counted_run(
            self.name,
            trajectory,
            found,
            dataset=(log.system_name or "")[:500] or None,
            episode=str(log.case_id)[:500],
            task="root_cause",
            stop_reason=(log.stop_reason or "")[:500] or None,
            model_calls=len(log.steps),
            seconds_model=_total([step.model_latency for step in log.steps]),
            seconds_tools=_total([step.tool_latency for step in log.steps]),
        )
        return [ImportedRun(key="", trajectory=trajectory, run=run, truth=_truth(log))]

    def score(self, run: AgentRun, truth: Mapping[str, Any]) -> OwnScore | None:
        """Score the first prediction (A@1), and the first three beside it (A@3)."""
        predictions = (run.answer or {}).get("root_causes", [])
        right = [all(_same(one.get(name), truth[name]) for name in _FIELDS) for one in predictions[:3]]
        first = bool(right[:1] and right[0])
        return OwnScore(success=first, value=float(first), parts={"a_at_1": float(first), "a_at_3": float(any(right))})

    def difference(self, run: AgentRun, truth: RunTruth, success: bool) -> str:
        """Nothing: the logs hold no result."""
        return ""


def _trajectory(log: _CaseLog, options: ImportOptions) -> Trajectory:
    writer = TrajectoryWriter(options.agent or "unknown", model=options.model)
    if log.question:
        writer.said("user", log.question)
    for step in log.steps:
        acts = step.action_type != "invalid" and bool(step.action_name)
        given = step.action_input if isinstance(step.action_input, dict) else {"input": step.action_input}
        result = step.observation if step.observation is not None else step.error
        writer.acted(
            step.raw_model_output or step.thought or "",
            calls=[(step.action_name or "", given)] if acts else None,
            results=None if result is None else [result if isinstance(result, str) else _json_text(result)],
            errors=[bool(step.error)],
            metrics=StepMetrics(prompt_tokens=step.input_tokens, completion_tokens=step.output_tokens),
        )
    if not len(writer):
        raise DataError("a log without a question and without steps is no run; restore the file")
    return writer.trajectory()


def _json_text(value: Any) -> str:
    return canonical_json(jsonable(value))


def _answer(final: Any) -> ReadAnswer | None:
    if final is None or final == "":
        return None
    if isinstance(final, str):
        inside = final[final.find("{") : final.rfind("}") + 1]
        try:
            final = json.loads(inside)
        except (ValueError, RecursionError):
            return ReadAnswer(status="unparsed", reason="the final answer is no JSON")
    predictions = final.get("top_3_predictions") if isinstance(final, dict) else None
    if not isinstance(predictions, list) or not all(isinstance(one, dict) for one in predictions) or not predictions:
        return ReadAnswer(status="invalid", reason="the final answer has no list of predictions")
    ordered = sorted(predictions, key=lambda one: one["rank"] if isinstance(one.get("rank"), int) else len(predictions))
    return ReadAnswer(status="ok", answer={"root_causes": [jsonable(one) for one in ordered]})


def _truth(log: _CaseLog) -> RunTruth:
    truth = {name: (log.ground_truth or {}).get(name) for name in _FIELDS}
    known = all(isinstance(value, str) for value in truth.values())
    place = f"{truth['fault_taxonomy']}/{truth['fault_object']}" if known else str(log.case_id)
    return RunTruth(
        cluster=f"{log.system_name}/{place}"[:500],
        label_version=_LABELS if known else None,
        truth_json=canonical_json(jsonable(truth)) if known else None,
    )


def _same(answer: Any, wanted: str) -> bool:
    return isinstance(answer, str) and answer.strip().lower() == wanted.strip().lower()


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return min(sum(known), 1e12) if known else None
