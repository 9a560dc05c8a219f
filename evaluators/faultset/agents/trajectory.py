"""What an agent did, step by step, as a trajectory in ATIF: the model, reading and writing."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, ValidationInfo, model_validator
from pydantic_core import to_json

from faultset.core.errors import DataError
from faultset.core.printable import printable, quoted
from faultset.core.reading.documents import parse_object, validation_sentence
from faultset.core.reading.regular_files import read_regular

SCHEMA_VERSION = "ATIF-v1.7"
LENIENT = {"lenient": True}
"""Validation context in which keys that are not known are left out."""
Extra = dict[str, JsonValue] | None
_OF_THE_AGENT = ("model_name", "reasoning_effort", "reasoning_content", "metrics", "tool_calls")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_unknown_keys(cls, data: Any, info: ValidationInfo) -> Any:
        if info.context is LENIENT and isinstance(data, dict):
            return {key: value for key, value in data.items() if key in cls.model_fields}
        return data


class ImageSource(_Part):
    """Where an image lies."""

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
    def _one_content(self) -> ContentPart:
        wanted, other = (self.text, self.source) if self.type == "text" else (self.source, self.text)
        if wanted is None or other is not None:
            raise ValueError(f'a part of type "{self.type}" has {"text" if self.type == "text" else "source"} alone')
        return self


Content = str | list[ContentPart]


class AgentIdentity(_Part):
    """Who acted."""

    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, JsonValue]] | None = None
    extra: Extra = None


class ToolCall(_Part):
    """A call of a tool by the agent."""

    tool_call_id: str
    function_name: str
    arguments: dict[str, JsonValue]
    extra: Extra = None


class TrajectoryReference(_Part):
    """Which trajectory another agent left."""

    trajectory_id: str | None = None
    session_id: str | None = None
    trajectory_path: str | None = None
    extra: Extra = None


class ToolResult(_Part):
    """What a call brought back."""

    source_call_id: str | None = None
    content: Content | None = None
    subagent_trajectory_ref: list[TrajectoryReference] | None = None
    extra: Extra = None


class StepObservation(_Part):
    """What came back in one step."""

    results: list[ToolResult]


class StepMetrics(_Part):
    """What one model call used; `prompt_tokens` holds the cached ones too."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    extra: Extra = None


class TrajectoryStep(_Part):
    """One message, with the calls in it and what they brought back."""

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
    def _consistent(self) -> TrajectoryStep:
        foreign = [key for key in _OF_THE_AGENT if getattr(self, key) is not None]
        if self.source != "agent" and foreign:
            raise ValueError(f"step {self.step_id} is of the {self.source}, and only the agent's have {foreign[0]}")
        if self.llm_call_count == 0 and (self.metrics or self.reasoning_content is not None):
            raise ValueError(f"step {self.step_id} made no model call, so it has no metrics and no reasoning_content")
        known = {call.tool_call_id for call in self.tool_calls or ()}
        for result in self.observation.results if self.observation else ():
            if result.source_call_id is not None and result.source_call_id not in known:
                raise ValueError(f"step {self.step_id} has the result of a call that it does not make")
        return self

    @property
    def text(self) -> str:
        """The message as text."""
        return text_of(self.message)


class FinalMetrics(_Part):
    """Sums over all steps."""

    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: float | None = None
    total_steps: int | None = Field(default=None, ge=0)
    extra: Extra = None


class Trajectory(_Part):
    """What an agent did from its task to its last step."""

    schema_version: Literal["ATIF-v1.7"] = SCHEMA_VERSION
    """Version of ATIF."""
    session_id: str | None = None
    """Id of the run in its source."""
    trajectory_id: str | None = None
    """Id of this part of a run of several agents."""
    agent: AgentIdentity
    """Who acted."""
    steps: list[TrajectoryStep] = Field(min_length=1)
    """What was done, in order."""
    notes: str | None = None
    """Remarks of the source."""
    final_metrics: FinalMetrics | None = None
    """Tokens, cost and number of steps of the whole."""
    continued_trajectory_ref: str | None = None
    """File in which the run goes on."""
    extra: Extra = None
    """What the source recorded beyond the format."""
    subagent_trajectories: list[Trajectory] | None = None
    """What agents did that this one started."""

    @model_validator(mode="after")
    def _numbered(self) -> Trajectory:
        for number, step in enumerate(self.steps, start=1):
            if step.step_id != number:
                raise ValueError(f"step ids count from 1 without gaps, found {step.step_id} at place {number}")
        embedded = self.subagent_trajectories or []
        if any(one.trajectory_id is None for one in embedded):
            raise ValueError("a trajectory inside another one has a trajectory_id")
        if len({one.trajectory_id for one in embedded}) != len(embedded):
            raise ValueError("trajectories inside another one have different ids")
        return self

    @property
    def agent_steps(self) -> list[TrajectoryStep]:
        """The steps of the agent itself, without those copied from an earlier trajectory."""
        return [step for step in self.steps if step.source == "agent" and not step.is_copied_context]

    def to_json(self) -> bytes:
        """Return the content of a trajectory file."""
        return self.model_dump_json(exclude_none=True, indent=1).encode()


def text_of(content: Content | None) -> str:
    """Return a message or a result as text; an image is its path in brackets."""
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
        It is no such file, in one sentence.
    """
    return parse_trajectory(parse_object(read_regular(path, limit_bytes=LIMIT_BYTES), str(path)), str(path))


def parse_trajectory(document: dict[str, Any], origin: str) -> Trajectory:
    """Return parsed JSON as a trajectory; see `read_trajectory`.

    Parameters
    ----------
    origin
        Names it in the error.
    """
    version = document.get("schema_version")
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise DataError(
            f"{printable(origin)} should be ATIF-v1.0 or later, it says {quoted(version)}; give a trajectory"
        )
    try:
        content = to_json(_as_written_now(document))
        return Trajectory.model_validate_json(content, context=LENIENT)
    except ValidationError as problem:
        raise DataError(f"{printable(origin)}: {validation_sentence(problem)}; restore the file") from None
    except (ValueError, RecursionError) as problem:
        reason = printable(str(problem).partition("\n")[0][:200])
        raise DataError(f"{printable(origin)} cannot be read as a trajectory ({reason}); restore the file") from None


def _as_written_now(document: dict[str, Any]) -> dict[str, Any]:
    """Say the version that we write, also in the trajectories inside."""
    changed = {**document, "schema_version": SCHEMA_VERSION}
    inside = document.get("subagent_trajectories")
    if isinstance(inside, list):
        changed["subagent_trajectories"] = [_as_written_now(one) if isinstance(one, dict) else one for one in inside]
    return changed


_DEEPEST = 100


class TrajectoryWriter:
    """Takes steps in order, then gives the trajectory."""

    def __init__(self, agent: str, *, version: str = "unknown", model: str | None = None) -> None:
        self._agent = AgentIdentity(name=agent, version=version, model_name=model)
        self._steps: list[TrajectoryStep] = []

    def said(self, source: str, message: str, *, timestamp: str | None = None) -> None:
        """Add a message of the system or the user."""
        self._steps.append(
            TrajectoryStep.model_validate(
                {"step_id": len(self._steps) + 1, "source": source, "message": plain_text(message)}
                | ({"timestamp": timestamp} if timestamp else {})
            )
        )

    def acted(
        self,
        message: str,
        *,
        calls: Sequence[tuple[str, Mapping[str, Any]]] | None = None,
        results: Sequence[str | None] | None = None,
        errors: Sequence[bool] | None = None,
        reasoning: str | None = None,
        metrics: StepMetrics | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a step of the agent.

        Parameters
        ----------
        calls
            Names and arguments of the tools that it called.
        results
            What came back: one for each call, or without calls what came back of the message.
        errors
            Which results are errors.
        """
        number = len(self._steps) + 1
        made = [
            ToolCall(tool_call_id=f"{number}.{place}", function_name=plain_text(name), arguments=jsonable(arguments))
            for place, (name, arguments) in enumerate(calls or (), start=1)
        ]
        back = []
        for place, content in enumerate(results or ()):
            failed = bool(errors and place < len(errors) and errors[place])
            back.append(
                ToolResult(
                    source_call_id=made[place].tool_call_id if place < len(made) else None,
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
                tool_calls=made or None,
                observation=StepObservation(results=back) if back else None,
                metrics=metrics,
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
        notes: str | None = None,
    ) -> Trajectory:
        """Return the trajectory; there must be a step."""
        return Trajectory(
            agent=self._agent, steps=self._steps, session_id=session_id, final_metrics=final_metrics, notes=notes
        )


def plain_text(text: str) -> str:
    """Return text that UTF-8 can hold: halves of surrogate pairs are replaced."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def jsonable(value: Any, depth: int = 0) -> Any:
    """Return a value of Python literals as JSON has it; what JSON lacks becomes its text."""
    if isinstance(value, str):
        return plain_text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value) if value.bit_length() < 10_000 else "a very large number"
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if depth >= _DEEPEST:
        return "..."
    if isinstance(value, Mapping):
        return {plain_text(str(key)): jsonable(one, depth + 1) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(one, depth + 1) for one in value]
    if isinstance(value, set | frozenset):
        return sorted((jsonable(one, depth + 1) for one in value), key=repr)
    return plain_text(repr(value)[:1000])
