"""Agent trajectories in ATIF, the Agent Trajectory Interchange Format: model, reader and writer."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, ValidationInfo, model_validator
from pydantic_core import to_json

from faultset.core.documents import parse_object, validation_sentence
from faultset.core.errors import DataError
from faultset.core.printable import printable, quoted
from faultset.core.regular_files import read_unpacked

SCHEMA_VERSION = "ATIF-v1.7"
LENIENT = {"lenient": True}
"""Validation context that ignores unknown keys."""
Extra = dict[str, JsonValue] | None
_AGENT_FIELDS = ("model_name", "reasoning_effort", "reasoning_content", "metrics", "tool_calls")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_unknown_keys(cls, data: Any, info: ValidationInfo) -> Any:
        if info.context is LENIENT and isinstance(data, dict):
            return {key: value for key, value in data.items() if key in cls.model_fields}
        return data


class ImageSource(_Part):
    """The location of an image."""

    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    path: str


class ContentPart(_Part):
    """A piece of a message: text or an image."""

    type: Literal["text", "image"]
    text: str | None = None
    source: ImageSource | None = None

    @model_validator(mode="before")
    @classmethod
    def _audio_as_text(cls, data: Any, info: ValidationInfo) -> Any:
        if info.context is LENIENT and isinstance(data, dict) and data.get("type") == "audio":
            source = data.get("source")
            path = source.get("path") if isinstance(source, dict) else None
            return {"type": "text", "text": f"[audio: {path}]"}
        return data

    @model_validator(mode="after")
    def _require_one_content(self) -> ContentPart:
        content, other = (self.text, self.source) if self.type == "text" else (self.source, self.text)
        if content is None or other is not None:
            raise ValueError(
                f'a part of type "{self.type}" must have only {"text" if self.type == "text" else "source"}'
            )
        return self


Content = str | list[ContentPart]


class AgentIdentity(_Part):
    """The agent that acted."""

    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, JsonValue]] | None = None
    extra: Extra = None


class ToolCall(_Part):
    """A tool call of the agent."""

    tool_call_id: str
    function_name: str
    arguments: dict[str, JsonValue]
    extra: Extra = None


class TrajectoryReference(_Part):
    """A reference to the trajectory of another agent."""

    trajectory_id: str | None = None
    session_id: str | None = None
    trajectory_path: str | None = None
    extra: Extra = None


class ToolResult(_Part):
    """The result of a tool call."""

    source_call_id: str | None = None
    content: Content | None = None
    subagent_trajectory_ref: list[TrajectoryReference] | None = None
    extra: Extra = None


class StepObservation(_Part):
    """The results of one step."""

    results: list[ToolResult]


class StepMetrics(_Part):
    """Usage of one model call; `prompt_tokens` includes cached tokens."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    extra: Extra = None


class TrajectoryStep(_Part):
    """One message with its tool calls and their results."""

    step_id: int = Field(ge=1)
    timestamp: str | None = None
    source: Literal["system", "user", "agent"]
    model_name: str | None = None
    reasoning_effort: str | float | None = None
    message: Content
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    observation: StepObservation | None = None
    metrics: StepMetrics | None = None
    is_copied_context: bool | None = None
    llm_call_count: int | None = Field(default=None, ge=0)
    extra: Extra = None

    @model_validator(mode="after")
    def _check_consistency(self) -> TrajectoryStep:
        misplaced = [key for key in _AGENT_FIELDS if getattr(self, key) is not None]
        if self.source != "agent" and misplaced:
            raise ValueError(f"step {self.step_id} from the {self.source} must not have {misplaced[0]}")
        if self.llm_call_count == 0 and (self.metrics or self.reasoning_content is not None):
            raise ValueError(f"step {self.step_id} without a model call must not have metrics or reasoning_content")
        call_ids = {call.tool_call_id for call in self.tool_calls or ()}
        for result in self.observation.results if self.observation else ():
            if result.source_call_id is not None and result.source_call_id not in call_ids:
                raise ValueError(f"step {self.step_id} has the result of a call that it does not contain")
        return self

    @property
    def text(self) -> str:
        """Return the message as text."""
        return text_of(self.message)


class FinalMetrics(_Part):
    """Totals over all steps."""

    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: float | None = None
    total_steps: int | None = Field(default=None, ge=0)
    extra: Extra = None


class Trajectory(_Part):
    """The steps of an agent from its task to the end."""

    schema_version: Literal["ATIF-v1.7"] = SCHEMA_VERSION
    """Version of ATIF."""
    session_id: str | None = None
    """Id of the run in its source."""
    trajectory_id: str | None = None
    """Id of this trajectory in a run of several agents."""
    agent: AgentIdentity
    """The agent."""
    steps: list[TrajectoryStep] = Field(min_length=1)
    """The steps in order."""
    notes: str | None = None
    """Remarks of the source."""
    final_metrics: FinalMetrics | None = None
    """Total tokens, cost and steps."""
    continued_trajectory_ref: str | None = None
    """File that continues the run."""
    extra: Extra = None
    """Data beyond the format."""
    subagent_trajectories: list[Trajectory] | None = None
    """Trajectories of agents started by this one."""

    @model_validator(mode="after")
    def _check_numbers(self) -> Trajectory:
        for number, step in enumerate(self.steps, start=1):
            if step.step_id != number:
                raise ValueError(f"step ids must count from 1 without gaps, got {step.step_id} at position {number}")
        ids = [trajectory.trajectory_id for trajectory in self.subagent_trajectories or ()]
        if None in ids:
            raise ValueError("a nested trajectory must have a trajectory_id")
        if len({*ids}) != len(ids):
            raise ValueError("nested trajectories must have different ids")
        return self

    @property
    def agent_steps(self) -> list[TrajectoryStep]:
        """Return the steps of the agent, except steps copied from an earlier trajectory."""
        return [step for step in self.steps if step.source == "agent" and not step.is_copied_context]

    def to_json(self) -> bytes:
        """Return the content of a trajectory file."""
        return self.model_dump_json(exclude_none=True, indent=1).encode()


def text_of(content: Content | None) -> str:
    """Return a message or a result as text; an image becomes its path in brackets."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = (part.text if part.source is None else f"[image: {part.source.path}]" for part in content)
    return "\n".join(part or "" for part in parts)


LIMIT_BYTES = 256 << 20
_VERSION = re.compile(r"ATIF-v1\.\d{1,3}")


def read_trajectory(path: Path) -> Trajectory:
    """Read a trajectory file of any version 1.x.

    Raises
    ------
    DataError
        The file is not a valid trajectory.
    """
    return parse_trajectory(parse_object(read_unpacked(path, limit_bytes=LIMIT_BYTES), str(path)), str(path))


def parse_trajectory(document: dict[str, Any], origin: str) -> Trajectory:
    """Return parsed JSON as a trajectory; see `read_trajectory`.

    Parameters
    ----------
    origin
        Name of the document in errors.
    """
    version = document.get("schema_version")
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise DataError(
            f"{printable(origin)} must have schema_version ATIF-v1.0 or later, got {quoted(version)}; give a trajectory"
        )
    try:
        content = to_json(_with_current_version(document))
        return Trajectory.model_validate_json(content, context=LENIENT)
    except ValidationError as problem:
        raise DataError(f"{printable(origin)}: {validation_sentence(problem)}; restore the file") from None
    except (ValueError, RecursionError) as problem:
        reason = printable(str(problem).partition("\n")[0][:200])
        raise DataError(f"{printable(origin)} cannot be read as a trajectory ({reason}); restore the file") from None


def _with_current_version(document: dict[str, Any]) -> dict[str, Any]:
    """Set the current schema version, in nested trajectories too."""
    changed = {**document, "schema_version": SCHEMA_VERSION}
    nested = document.get("subagent_trajectories")
    if isinstance(nested, list):
        changed["subagent_trajectories"] = [
            _with_current_version(item) if isinstance(item, dict) else item for item in nested
        ]
    return changed


_MAX_DEPTH = 100


class TrajectoryWriter:
    """Builds a trajectory from steps in order."""

    def __init__(self, agent: str, *, version: str = "unknown", model: str | None = None) -> None:
        self._agent = AgentIdentity(name=agent, version=version, model_name=model)
        self._steps: list[TrajectoryStep] = []

    def add_message(self, source: str, message: str) -> None:
        """Add a message of the system or the user."""
        self._steps.append(
            TrajectoryStep.model_validate(
                {"step_id": len(self._steps) + 1, "source": source, "message": plain_text(message)}
            )
        )

    def add_agent_step(
        self,
        message: str,
        *,
        calls: Sequence[tuple[str, Mapping[str, Any]]] | None = None,
        results: Sequence[str | None] | None = None,
        errors: Sequence[bool] | None = None,
        reasoning: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a step of the agent.

        Parameters
        ----------
        calls
            Names and arguments of the called tools.
        results
            One result per call; without calls, the result of the message.
        errors
            Whether each result is an error.
        """
        number = len(self._steps) + 1
        tool_calls = [
            ToolCall(tool_call_id=f"{number}.{i}", function_name=plain_text(name), arguments=jsonable(arguments))
            for i, (name, arguments) in enumerate(calls or (), start=1)
        ]
        tool_results = []
        for i, content in enumerate(results or ()):
            failed = bool(errors and i < len(errors) and errors[i])
            tool_results.append(
                ToolResult(
                    source_call_id=tool_calls[i].tool_call_id if i < len(tool_calls) else None,
                    content=None if content is None else plain_text(content),
                    extra={"error": True} if failed else None,
                )
            )
        self._steps.append(
            TrajectoryStep(
                step_id=number,
                source="agent",
                message=plain_text(message),
                reasoning_content=None if reasoning is None else plain_text(reasoning),
                tool_calls=tool_calls or None,
                observation=StepObservation(results=tool_results) if tool_results else None,
                extra=jsonable(extra) if extra else None,
            )
        )

    def __len__(self) -> int:
        return len(self._steps)

    def trajectory(
        self,
        *,
        session_id: str | None = None,
        final_metrics: FinalMetrics | None = None,
    ) -> Trajectory:
        """Return the trajectory, which must have at least one step."""
        return Trajectory(agent=self._agent, steps=self._steps, session_id=session_id, final_metrics=final_metrics)


def plain_text(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def jsonable(value: Any, depth: int = 0) -> Any:
    """Convert a Python value to JSON types; values without a counterpart become text."""
    if isinstance(value, str):
        return plain_text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value) if value.bit_length() < 10_000 else "a very large number"
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if depth >= _MAX_DEPTH:
        return "..."
    if isinstance(value, Mapping):
        return {plain_text(str(key)): jsonable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item, depth + 1) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((jsonable(item, depth + 1) for item in value), key=repr)
    return plain_text(repr(value)[:1000])
