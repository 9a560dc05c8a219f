"""Records of agent runs: rows of `runs.parquet`, and their ground truth as rows of `truth.parquet`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator

from faultset.core.documents import validation_sentence
from faultset.core.errors import DataError
from faultset.core.files import parquet_path, replacing
from faultset.core.printable import printable
from faultset.core.regular_files import stat_regular_file
from faultset.datasets.format.storage import translate_damage

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
    """One run: agent, problem, status, answer and usage."""

    run: RunId
    """Name of the run and of its trajectory file, unique within the folder."""
    format: Name
    """Format of the source file."""
    agent: Name
    """Name of the agent."""
    agent_version: Name | None = None
    """Version of the agent; null if unknown."""
    model: Name | None = None
    """Name of the language model."""
    settings_hash: Name | None = None
    """Hash of the agent's settings."""
    dataset: Name | None = None
    """Dataset or benchmark of the problem."""
    version: Name | None = None
    """Version of the dataset."""
    episode: Name | None = None
    """Episode of a faultset dataset, or problem of another benchmark."""
    task: Literal["detection", "localization", "diagnosis", "mitigation", "root_cause", "other", "all"]
    """The task; "all" is detection, localization and diagnosis in one answer."""
    protocol: Name | None = None
    """Information about the time of the fault that the agent received."""
    trial: Count | None = None
    """Number of the attempt at the problem, as counted by the source."""
    seed: int | None = None
    """Seed of the attempt."""
    status: Status
    """How the run ended; see `faultset.agents.runs.answers`."""
    status_reason: str = ""
    """Reason for the status in one sentence; empty for "ok"."""
    answer_json: str | None = None
    """The answer as canonical JSON; see `faultset.agents.runs.answers`."""
    steps: Count
    """Number of messages from the agent."""
    model_calls: Count | None = None
    """Number of calls of the language model."""
    tool_calls: Count
    """Number of tool calls."""
    tool_errors: Count
    """Number of tool calls that ended in an error."""
    not_recorded: Count | None = None
    """Requests that a recording could not answer; null if unknown."""
    refused: Count | None = None
    """Refused requests; null if unknown."""
    repeats: Count
    """Number of messages from the agent that are identical to an earlier one."""
    prompt_tokens: Count | None = None
    """Tokens sent to the model."""
    cached_tokens: Count | None = None
    """Prompt tokens that came from a cache."""
    completion_tokens: Count | None = None
    """Tokens written by the model."""
    tokens_source: Literal["api", "estimated", "none"] = "none"
    """api: reported by the API; estimated: counted by the source from texts; none: unknown."""
    cost_usd: float | None = None
    """Cost of the model calls in US dollars."""
    seconds_model: float | None = None
    """Time in model calls."""
    seconds_tools: float | None = None
    """Time in tool calls."""
    seconds: float | None = None
    """Duration of the whole run."""
    started_ns: int | None = None
    """Start of the run, UTC nanoseconds."""
    alarm_ns: int | None = None
    """Alarm passed to the agent, UTC nanoseconds; null if there is none."""
    answered_ns: int | None = None
    """Time of the recording at which the agent answered, UTC nanoseconds; null without an answer."""
    stop_reason: Name | None = None
    """Why the run stopped, as stated by the source; in ATIF, the rule by which the import found the answer."""
    trajectory_path: Name = ""
    """Trajectory file, relative to the folder of the runs."""
    trajectory_sha256: Name = ""
    """Hash of the trajectory file."""
    contamination: Literal["possible", "none", "unknown"] = "possible"
    """Whether the model may have been trained on the published problem."""
    source_file: Name = ""
    """Source file, relative to the imported path."""
    source_sha256: Name = ""
    """Hash of the source file."""

    @property
    def answer(self) -> dict[str, Any] | None:
        """Return the parsed answer."""
        return None if self.answer_json is None else json.loads(self.answer_json)


class RunTruth(_Row):
    """The source's label and result of a run, stored separately from the run."""

    run: RunId = "unnamed"
    """Name of the run."""
    cluster: Name
    """Fault and target; runs of one cluster are not independent."""
    label_version: Name | None = None
    """Version of the source's labels; null without a label."""
    truth_json: str | None = None
    """The label as JSON; null without a label."""
    recorded_success: bool | None = None
    """Whether the source counted the run as a success; null if unknown."""
    recorded_value: float | None = None
    """The source's score of the run, from 0 to 1."""
    recorded_json: str = "{}"
    """The source's result as JSON."""

    @property
    def truth(self) -> dict[str, Any] | None:
        """Return the parsed label."""
        return None if self.truth_json is None else json.loads(self.truth_json)

    @property
    def recorded(self) -> dict[str, Any]:
        """Return the source's parsed result."""
        return json.loads(self.recorded_json)


_ARROW = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def _build_schema(record: type[BaseModel]) -> pa.Schema:
    """Return the schema of a table with one column per field of the record."""
    columns = []
    for name, field in record.model_fields.items():
        kinds = {*_list_plain_types(field.annotation)}
        (kind,) = kinds - {type(None)}
        columns.append(pa.field(name, _ARROW[kind], nullable=type(None) in kinds))
    return pa.schema(columns, metadata={"faultset.agent_runs": str(RUNS_VERSION)})


def _list_plain_types(annotation: Any) -> Iterator[type]:
    """Yield the types of a field's values; a Literal is text."""
    if get_origin(annotation) is Literal:
        yield str
    elif get_origin(annotation) is Annotated:
        yield from _list_plain_types(get_args(annotation)[0])
    elif get_args(annotation):
        for argument in get_args(annotation):
            yield from _list_plain_types(argument)
    else:
        yield annotation


RUNS, TRUTH = _build_schema(AgentRun), _build_schema(RunTruth)


RUNS_FILE, TRUTH_FILE, TRAJECTORIES = "runs.parquet", "truth.parquet", "trajectories"
_MAX_BYTES = 1 << 30
_MAX_ROWS = 5_000_000
T = TypeVar("T", bound=BaseModel)


def write_tables(folder: Path, runs: Iterable[AgentRun], truths: Iterable[RunTruth]) -> None:
    """Write both tables into a new folder."""
    _write_table(folder / RUNS_FILE, RUNS, runs)
    _write_table(folder / TRUTH_FILE, TRUTH, truths)


def _write_table(path: Path, schema: pa.Schema, rows: Iterable[BaseModel]) -> None:
    table = pa.Table.from_pylist([row.model_dump() for row in rows], schema=schema)
    with replacing(path, durable=False) as temporary:
        pq.write_table(table, parquet_path(temporary), compression="zstd")


def read_runs(folder: Path | str) -> list[AgentRun]:
    """Return the runs of an imported folder, in its order.

    Raises
    ------
    DataError
        The folder was not written by an import, or a file in it is damaged or has a different layout.
    """
    return _read_table(Path(folder) / RUNS_FILE, RUNS, AgentRun)


def read_truths(folder: Path | str) -> dict[str, RunTruth]:
    """Return the label and result of each run's source; see `read_runs`."""
    path = Path(folder)
    if (path / RUNS_FILE).is_file() and not (path / TRUTH_FILE).exists():
        raise DataError(
            f"{printable(path)} holds runs without labels; score them with evaluate DATASET --agents {printable(path)}"
        )
    return {truth.run: truth for truth in _read_table(path / TRUTH_FILE, TRUTH, RunTruth)}


def trajectory_file(folder: Path | str, run: AgentRun) -> Path:
    """Return the trajectory file of a run."""
    return Path(folder) / TRAJECTORIES / f"{run.run}.json"


def _read_table(path: Path, schema: pa.Schema, kind: type[T]) -> list[T]:
    if not path.parent.is_dir():
        raise DataError(f"{printable(path.parent)} is not a folder; give one written by faultset agents import")
    stat_regular_file(path, limit_bytes=_MAX_BYTES)
    with translate_damage(path):
        file = pq.ParquetFile(parquet_path(path))
        with file:
            if file.metadata.num_rows > _MAX_ROWS:
                raise DataError(
                    f"{printable(path)} has {file.metadata.num_rows:,} rows, but the limit is {_MAX_ROWS:,}; import "
                    "the runs again"
                )
            layout = (file.schema_arrow.metadata or {}).get(b"faultset.agent_runs", b"none")
            if layout != str(RUNS_VERSION).encode() or file.schema_arrow.names != schema.names:
                raise DataError(
                    f"{printable(path)} holds runs in layout {printable(layout[:20].decode('utf-8', 'replace'))}, "
                    f"expected {RUNS_VERSION}; import the runs again"
                )
            rows = file.read().to_pylist()
    try:
        return [kind.model_validate(row) for row in rows]
    except ValidationError as problem:
        raise DataError(f"{printable(path)}: {validation_sentence(problem)}; import the runs again") from None


def find_record(trajectory: Path) -> AgentRun | None:
    """Return the record of a trajectory file in an imported folder; None for a file elsewhere."""
    folder = trajectory.resolve().parent.parent
    if trajectory.resolve().parent.name != TRAJECTORIES or not (folder / RUNS_FILE).is_file():
        return None
    return next((run for run in read_runs(folder) if run.run == trajectory.stem), None)


QUESTION = "faultset"
"""Key of the question in the metadata of a sample; its value is an `AskedQuestion`."""
CANDIDATES = "candidates"
"""Key of the services that an answer may name."""
CLUSTER = "cluster"
"""Key of the fault and its target; samples of one cluster are not independent."""
REPORT = "faultset"
"""Key of the session's report in the store of a sample."""
AGENT = "faultset_agent"
"""Key of a built-in agent in the store of a sample; its value is an `AgentRecord`."""


class AskedQuestion(BaseModel):
    """The question of a sample."""

    model_config = ConfigDict(frozen=True)

    task: Literal["detection", "localization", "diagnosis", "all", "mitigation"]
    folder: str = ""
    """Dataset of a recorded episode."""
    version: str = ""
    protocol: str | None = None
    alarm_ns: int | None = None
    alarm_detector: str | None = None
    complaint: str | None = None
    """Text of a user that the agent gets instead of the alarm."""


class AgentRecord(BaseModel):
    """The built-in agent that answered."""

    model_config = ConfigDict(frozen=True)

    name: str
    version: str
    kind: str
    """agent, or control for one without a model."""
