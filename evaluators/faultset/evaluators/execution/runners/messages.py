"""Messages between an evaluation and its method processes.

Requests are pickled. Replies come from untrusted code, so they are plain data: a JSON header, and a fitted model as
bytes that only the same method unpickles. Anything else in a reply is an error of the method.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError
from pydantic_core import from_json

from faultset.core.documents import STRICT, validation_sentence
from faultset.core.printable import printable
from faultset.datasets.format.labels import AlarmLocation
from faultset.evaluators.results.rows import ResultRow, Status
from faultset.evaluators.results.stored_answers import StoredAnswer
from faultset.evaluators.results.truth import Truth

Action = Literal["detect", "localize", "diagnose"]


class TrainingLabel(NamedTuple):
    """Ground truth of one training episode: the fields of `Labelled` except its view."""

    service: str | None
    system_level: str | None
    fault_type: str | None
    causes: tuple[str, ...] = ()
    onset_ns: int | None = None


@dataclass(frozen=True, kw_only=True)
class Blob:
    """Bytes that are sent to a runner once and later referred to by digest."""

    digest: str
    data: bytes = b""

    @classmethod
    def of(cls, data: bytes) -> Blob:
        """Wrap bytes."""
        return cls(digest=hashlib.sha256(data).hexdigest(), data=data)

    @property
    def without_data(self) -> Blob:
        """Return only the digest, for a runner that already has the bytes."""
        return replace(self, data=b"")


EMPTY_BLOB = Blob.of(b"")


@dataclass(frozen=True, kw_only=True)
class MethodProcess:
    """The process that serves a request, and the files it may read.

    A third-party method gets one process per episode. Built-in methods share one process for all episodes of a dask
    task: frames are computed once, and no process is started per answer.
    """

    key: str
    """Requests with the same key are served by the same process while it is alive."""
    built_in: bool
    """Whether it runs only methods that come with faultset."""
    episodes: tuple[str, ...]
    """Folders of the episodes whose context and telemetry are readable."""
    tables: tuple[str, ...] | None
    """Readable tables; None for all."""
    code: tuple[str, ...] = ()
    """Files and folders of the method's code."""
    hidden: tuple[str, ...] = ()
    """Files and folders that may not be read, even inside a readable folder."""


@dataclass(frozen=True, kw_only=True)
class FitRequest:
    """Build a baseline and fit it."""

    number: int
    process: MethodProcess
    spec: Blob
    """The baseline's spec, serialised with cloudpickle so that methods defined in a notebook work too."""
    seed: int
    episodes: tuple[str, ...]
    """Folders of the training episodes."""
    labels: tuple[TrainingLabel, ...] = ()
    """Ground truth of each episode, for a baseline that needs labels."""


@dataclass(frozen=True, kw_only=True)
class AnswerRequest:
    """Run a fitted baseline on one episode."""

    number: int
    process: MethodProcess
    action: Action
    spec: Blob
    model: Blob
    """The fitted baseline, serialised with cloudpickle."""
    seed: int
    episode: str
    """Folder of the episode."""
    alarm_ns: int = 0
    """Alarm passed to a localizer or diagnoser."""
    alarm_location: AlarmLocation | None = None
    """Service and metric of the alarm, for a method that declares `alarm_location` among its needs."""


@dataclass(frozen=True, kw_only=True)
class CheckedAnswer:
    """A valid answer as plain data."""

    text: str
    """JSON of everything except the ranking."""
    alarm_ns: int | None = None
    ranking: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RunnerOutcome:
    """The result of one request, including crashes and exceeded limits."""

    status: Status
    answer: CheckedAnswer | None = None
    model: bytes = b""
    """The fitted baseline, after a `FitRequest`."""
    reason: str = ""
    seconds: float = 0.0
    cpu_seconds: float | None = None
    """None if the process died before it could report."""
    peak_bytes: int = 0


HEADER_BYTES = 64 << 20
MODEL_BYTES = 1 << 30


_Time = Annotated[int, Field(ge=0, lt=2**63)]
_Text = Annotated[str, StringConstraints(max_length=1 << 16)]


@dataclass(frozen=True, kw_only=True)
class _Evidence:
    __pydantic_config__ = STRICT

    service: _Text
    subject: _Text
    score: float
    detail: _Text


@dataclass(frozen=True, kw_only=True)
class _AnswerText:
    __pydantic_config__ = STRICT

    left_out: list[tuple[_Text, _Text]] = field(default_factory=list)
    """(service, metric) of the first series that the method ignored; see `add_skipped_series`."""
    left_out_count: int = 0


@dataclass(frozen=True, kw_only=True)
class _DetectionText(_AnswerText):
    """Schema of the text of a detector's answer; see `check_detection`."""

    times_ns: list[_Time] | None = None
    times_even: tuple[_Time, Annotated[int, Field(gt=0)], Annotated[int, Field(gt=0)]] | None = None
    scores: list[float]
    flags: Annotated[str, StringConstraints(pattern="^[01]*$")]
    threshold: float
    consecutive: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None
    evidence: list[_Evidence]

    def __post_init__(self) -> None:
        times = self.times_even[2] if self.times_even else len(self.times_ns or ())
        if not times == len(self.scores) == len(self.flags):
            raise ValueError("should have as many times as scores and flags")
        if self.times_even and self.times_even[0] + self.times_even[1] * self.times_even[2] >= 2**63:
            raise ValueError("should have times below 2^63 nanoseconds")


@dataclass(frozen=True, kw_only=True)
class _RankingText(_AnswerText):
    """Schema of the text of a localizer's answer; see `check_ranking`."""

    unknown: list[_Text]
    confidence: float
    evidence: list[_Evidence]
    metrics: list[tuple[_Text, _Text, float]] = field(default_factory=list)
    metrics_named: int = 0
    pods: dict[_Text, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _DiagnosisText(_AnswerText):
    """Schema of the text of a diagnoser's answer; see `check_diagnosis`."""

    system_level: _Text | None
    fault_type: _Text | None
    confidence: float
    evidence: list[_Evidence]


_TEXTS: dict[Action, TypeAdapter[Any]] = {
    "detect": TypeAdapter(_DetectionText),
    "localize": TypeAdapter(_RankingText),
    "diagnose": TypeAdapter(_DiagnosisText),
}
_RANKING = TypeAdapter(dict[_Text, Annotated[float, Field(allow_inf_nan=False, strict=True)]])


class UnreadableReply(Exception):
    """The bytes are not a valid reply; the message says why."""


def reply_header(number: int, reply: RunnerOutcome, modules: Iterable[str] = ()) -> bytes:
    """Return everything except the model as JSON.

    Parameters
    ----------
    modules
        Modules that were imported while the request was served.
    """
    answer = reply.answer
    content = {
        "number": number,
        "status": reply.status,
        "reason": printable(reply.reason),
        "seconds": reply.seconds,
        "cpu_seconds": reply.cpu_seconds,
        "peak_bytes": reply.peak_bytes,
        "answer": answer and {"text": answer.text, "alarm_ns": answer.alarm_ns, "ranking": dict(answer.ranking)},
        "modules": list(modules),
    }
    return json.dumps(content).encode()


def imported_modules(header: bytes) -> list[str]:
    """Return the imported modules that a reply of faultset's own code lists."""
    return [str(name) for name in json.loads(header)["modules"]]


def read_reply(header: bytes, model: bytes, number: int, action: Action | None) -> RunnerOutcome:
    """Parse and validate a reply.

    Parameters
    ----------
    number
        Number of the request.
    action
        The requested action; None for a fit.

    Raises
    ------
    UnreadableReply
        The bytes are not a valid reply to that request.
    """
    try:
        content = from_json(header, allow_inf_nan=False)
        if content["number"] != number:
            raise ValueError(f"it is numbered {content['number']!r}")
        status, answer = content["status"], content["answer"]
        if status not in ("ok", "invalid", "error", "cannot"):
            raise ValueError("its status is unknown")
        if (answer is not None) != (status == "ok" and action is not None):
            raise ValueError("its answer does not fit the request")
        return RunnerOutcome(
            status=status,
            answer=None if answer is None or action is None else _read_answer(answer, action),
            model=model,
            reason=printable(str(content["reason"])[:1000]),
            seconds=_read_amount(content["seconds"]),
            cpu_seconds=_read_amount(content["cpu_seconds"]),
            peak_bytes=round(_read_amount(content["peak_bytes"])),
        )
    except ValidationError as error:
        raise UnreadableReply(validation_sentence(error)[:100]) from None
    except (ValueError, TypeError, KeyError, RecursionError, AttributeError, OverflowError) as error:
        raise UnreadableReply(printable(str(error))[:100] or type(error).__name__) from None


def _read_answer(content: Any, action: Action) -> CheckedAnswer:
    text, alarm_ns = content["text"], content["alarm_ns"]
    _TEXTS[action].validate_json(text)
    if alarm_ns is not None and (type(alarm_ns) is not int or not 0 <= alarm_ns < 2**63):
        raise ValueError("its alarm is not a time")
    return CheckedAnswer(text=text, alarm_ns=alarm_ns, ranking=_RANKING.validate_python(content["ranking"]))


def _read_amount(value: Any) -> float:
    number = float(value)
    if not 0 <= number < 2**53:
        raise ValueError("an amount is out of range")
    return number


@dataclass(frozen=True, kw_only=True)
class RunLimits:
    """Limits for one answer of a baseline."""

    timeout_s: float = 60.0
    memory_bytes: int = 2 << 30

    def for_fit(self) -> RunLimits:
        """Return the limits for a fit, which reads many episodes."""
        return RunLimits(timeout_s=5 * self.timeout_s, memory_bytes=self.memory_bytes)


class RunnerStopped(Exception):
    """The evaluation is stopping and accepts no more requests."""


def fill_row(row: ResultRow, outcome: RunnerOutcome) -> ResultRow:
    """Return the row with the outcome of its request."""
    answer, status, reason = outcome.answer, outcome.status, outcome.reason
    if answer is not None and (problem := _explain_impossible(answer, row.truth)):
        answer, status, reason = None, "error", f"its process sent an invalid reply ({problem})"
    return replace(
        row,
        status=status,
        reason=reason,
        seconds=round(outcome.seconds, 6),
        cpu_seconds=None if outcome.cpu_seconds is None else round(outcome.cpu_seconds, 6),
        peak_bytes=outcome.peak_bytes,
        alarm_ns=None if answer is None else answer.alarm_ns,
        ranking={} if answer is None else answer.ranking,
        answer=StoredAnswer("{}" if answer is None else answer.text),
    )


def _explain_impossible(answer: CheckedAnswer, truth: Truth) -> str:
    """Return why an answer cannot belong to the episode; empty if it can.

    The method's process has checked this before, but a hostile method could have bypassed the check.
    """
    if not answer.ranking.keys() <= {*truth.candidates}:
        return "it ranks services that are not candidates"
    if answer.alarm_ns is not None and not truth.view_start_ns <= answer.alarm_ns <= truth.view_end_ns:
        return "its alarm is outside the view"
    return ""
