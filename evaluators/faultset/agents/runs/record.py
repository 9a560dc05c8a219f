"""One run of an agent as a row of `runs.parquet`, and what is known of the truth as a row of `truth.parquet`."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, get_args

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

RUNS_VERSION = 1
"""Version of the layout of both tables."""
Status = Literal[
    "ok", "no_answer", "invalid", "unparsed", "step_limit", "token_limit", "cost_limit", "timeout", "harness_error",
    "cheated",
]  # fmt: skip
STATUSES: tuple[Status, ...] = get_args(Status)
TASKS = ("detection", "localization", "diagnosis", "mitigation", "root_cause", "other", "all")
Name = Annotated[str, StringConstraints(max_length=500)]
RunId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Count = Annotated[int, Field(ge=0, lt=2**63)]


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)

    @field_validator("answer_json", "truth_json", "recorded_json", check_fields=False)
    @classmethod
    def _is_json(cls, text: str | None) -> str | None:
        if text is not None:
            json.loads(text)
        return text


class AgentRun(_Row):
    """One run: who acted on what, how it ended, what it answered and what it cost."""

    run: RunId
    """Unique in its folder, and the name of its trajectory file."""
    format: Name
    """Format that it was recorded in."""
    agent: Name
    """Name of the agent."""
    agent_version: Name | None = None
    """Version of the agent; null where the source does not say."""
    model: Name | None = None
    """Name of the language model."""
    settings_hash: Name | None = None
    """Hash of the agent's settings."""
    dataset: Name | None = None
    """Dataset or benchmark of the problem."""
    version: Name | None = None
    """Version of the dataset."""
    episode: Name | None = None
    """Of a recording of ours the episode; of another benchmark its problem or case."""
    task: Literal["detection", "localization", "diagnosis", "mitigation", "root_cause", "other", "all"]
    """What the agent was asked for; "all" is detection, localization and diagnosis in one answer."""
    protocol: Name | None = None
    """What the agent was told of the time of the fault."""
    trial: Count | None = None
    """Number of the attempt at the problem, as the source counts."""
    seed: int | None = None
    """Seed of the attempt."""
    status: Status
    """How the run ended; see `faultset.agents.runs.statuses`."""
    status_reason: str = ""
    """Why it ended so, in one sentence; empty where it answered."""
    answer_json: str | None = None
    """The answer as canonical JSON; see `faultset.agents.runs.answers`."""
    steps: Count
    """Messages of the agent."""
    model_calls: Count | None = None
    """Calls of the language model."""
    tool_calls: Count
    """Calls of tools."""
    tool_errors: Count
    """Calls of tools that ended in an error."""
    not_recorded: Count | None = None
    """Requests that a recording could not answer; null where the agent acted on a running system."""
    refused: Count | None = None
    """Requests that were refused; null where the source does not say."""
    repeats: Count
    """Messages of the agent that say and call exactly what an earlier one did."""
    prompt_tokens: Count | None = None
    """Tokens that were sent to the model."""
    cached_tokens: Count | None = None
    """Those of them that came from a cache."""
    completion_tokens: Count | None = None
    """Tokens that the model wrote."""
    tokens_source: Literal["api", "estimated", "none"] = "none"
    """api as the API reported them, estimated as the source counted the texts, or none."""
    cost_usd: float | None = None
    """What the calls of the model cost in US dollars."""
    seconds_model: float | None = None
    """Time in calls of the model."""
    seconds_tools: float | None = None
    """Time in calls of tools."""
    seconds: float | None = None
    """From the first to the last moment of the run, model and tools together."""
    started_ns: int | None = None
    """When the run began, UTC nanoseconds."""
    alarm_ns: int | None = None
    """Alarm that the agent was told, UTC nanoseconds; null without one."""
    answered_ns: int | None = None
    """Moment of the recording at which it answered, UTC nanoseconds; null without an answer."""
    stop_reason: Name | None = None
    """Why it stopped, in the word of the source, or where the answer was found."""
    trajectory_path: Name = ""
    """Relative to the folder of the runs."""
    trajectory_sha256: Name = ""
    """Hash of the trajectory file."""
    contamination: Literal["possible", "none", "unknown"] = "possible"
    """Whether the model may have learnt from the problem's publication."""
    source_file: Name = ""
    """Relative to what was imported."""
    source_sha256: Name = ""
    """Hash of that file."""

    @property
    def answer(self) -> dict[str, Any] | None:
        """The answer, parsed."""
        return None if self.answer_json is None else json.loads(self.answer_json)


class RunTruth(_Row):
    """What a source says of a run: its label, and its own result. Stored apart from what the agent did."""

    run: RunId = "unnamed"
    """The run that it is about."""
    cluster: Name
    """Runs of one cluster ask about the same fault at the same place, so they are nearly one observation."""
    label_version: Name | None = None
    """Which state of the source's labels `truth_json` is; null without a label."""
    truth_json: str | None = None
    """The label as JSON; null where the source has none."""
    recorded_success: bool | None = None
    """Whether the source counted the run as a success; null where it does not say."""
    recorded_value: float | None = None
    """The source's own score of the run, from 0 to 1."""
    recorded_json: str = "{}"
    """The source's own result, as it stands there."""

    @property
    def truth(self) -> dict[str, Any] | None:
        """The label, parsed."""
        return None if self.truth_json is None else json.loads(self.truth_json)

    @property
    def recorded(self) -> dict[str, Any]:
        """The source's result, parsed."""
        return json.loads(self.recorded_json)


_TEXT, _INT, _FLOAT = pa.string(), pa.int64(), pa.float64()
_METADATA = {"faultset.agent_runs": str(RUNS_VERSION)}


def _field(name: str, kind: pa.DataType, *, null: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable=null)


RUNS = pa.schema(
    [
        _field("run", _TEXT, null=False),
        _field("format", _TEXT, null=False),
        _field("agent", _TEXT, null=False),
        _field("agent_version", _TEXT),
        _field("model", _TEXT),
        _field("settings_hash", _TEXT),
        _field("dataset", _TEXT),
        _field("version", _TEXT),
        _field("episode", _TEXT),
        _field("task", _TEXT, null=False),
        _field("protocol", _TEXT),
        _field("trial", _INT),
        _field("seed", _INT),
        _field("status", _TEXT, null=False),
        _field("status_reason", _TEXT, null=False),
        _field("answer_json", _TEXT),
        _field("steps", _INT, null=False),
        _field("model_calls", _INT),
        _field("tool_calls", _INT, null=False),
        _field("tool_errors", _INT, null=False),
        _field("not_recorded", _INT),
        _field("refused", _INT),
        _field("repeats", _INT, null=False),
        _field("prompt_tokens", _INT),
        _field("cached_tokens", _INT),
        _field("completion_tokens", _INT),
        _field("tokens_source", _TEXT, null=False),
        _field("cost_usd", _FLOAT),
        _field("seconds_model", _FLOAT),
        _field("seconds_tools", _FLOAT),
        _field("seconds", _FLOAT),
        _field("started_ns", _INT),
        _field("alarm_ns", _INT),
        _field("answered_ns", _INT),
        _field("stop_reason", _TEXT),
        _field("trajectory_path", _TEXT, null=False),
        _field("trajectory_sha256", _TEXT, null=False),
        _field("contamination", _TEXT, null=False),
        _field("source_file", _TEXT, null=False),
        _field("source_sha256", _TEXT, null=False),
    ],
    metadata=_METADATA,
)
TRUTH = pa.schema(
    [
        _field("run", _TEXT, null=False),
        _field("cluster", _TEXT, null=False),
        _field("label_version", _TEXT),
        _field("truth_json", _TEXT),
        _field("recorded_success", pa.bool_()),
        _field("recorded_value", _FLOAT),
        _field("recorded_json", _TEXT, null=False),
    ],
    metadata=_METADATA,
)
