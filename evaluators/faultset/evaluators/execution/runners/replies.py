"""Replies of method processes as bytes, and back: whatever a method wrote instead is one error."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError
from pydantic_core import from_json

from faultset.core.printable import printable
from faultset.core.reading.documents import STRICT, validation_sentence
from faultset.evaluators.execution.runners.messages import Action, CheckedAnswer, RunnerReply

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
class _DetectionText:
    """What the text of a detector's answer holds; see `check_detection`."""

    __pydantic_config__ = STRICT

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
            raise ValueError("should have times of this era")


@dataclass(frozen=True, kw_only=True)
class _RankingText:
    """What the text of a localizer's answer holds beside the ranking; see `check_ranking`."""

    __pydantic_config__ = STRICT

    unknown: list[_Text]
    confidence: float
    evidence: list[_Evidence]
    metrics: list[tuple[_Text, _Text, float]] = field(default_factory=list)
    metrics_named: int = 0
    pods: dict[_Text, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _DiagnosisText:
    """What the text of a diagnoser's answer holds; see `check_diagnosis`."""

    __pydantic_config__ = STRICT

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
    """Bytes that are no reply; the text says why."""


def reply_header(reply: RunnerReply, modules: Iterable[str] = ()) -> bytes:
    """Write everything but the model as JSON.

    Parameters
    ----------
    modules
        Modules that carrying out the request has imported.
    """
    answer = reply.answer
    content = {
        "number": reply.number,
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
    """Return the modules that a reply of faultset's own code names."""
    return [str(name) for name in json.loads(header)["modules"]]


def read_reply(header: bytes, model: bytes, number: int, action: Action | None) -> RunnerReply:
    """Read a reply and check every part of it.

    Parameters
    ----------
    number
        Of the request.
    action
        What the method was asked to do; None where it was fitted.

    Raises
    ------
    UnreadableReply
        The bytes are no reply to the request of that number.
    """
    try:
        content = from_json(header, allow_inf_nan=False)
        if content["number"] != number:
            raise ValueError(f"it is numbered {content['number']!r}")
        status, answer = content["status"], content["answer"]
        if status not in ("ok", "invalid", "error", "cannot"):
            raise ValueError("its status is unknown")
        if (answer is not None) != (status == "ok" and action is not None):
            raise ValueError("it has an answer where none was asked for, or none where one was")
        return RunnerReply(
            number=number,
            status=status,
            answer=None if answer is None or action is None else _answer(answer, action),
            model=model,
            reason=printable(str(content["reason"])[:1000]),
            seconds=_amount(content["seconds"]),
            cpu_seconds=_amount(content["cpu_seconds"]),
            peak_bytes=round(_amount(content["peak_bytes"])),
        )
    except ValidationError as error:
        raise UnreadableReply(validation_sentence(error)[:100]) from None
    except (ValueError, TypeError, KeyError, RecursionError, AttributeError, OverflowError) as error:
        raise UnreadableReply(printable(str(error))[:100] or type(error).__name__) from None


def _answer(content: Any, action: Action) -> CheckedAnswer:
    text, alarm_ns = content["text"], content["alarm_ns"]
    _TEXTS[action].validate_json(text)
    if alarm_ns is not None and (type(alarm_ns) is not int or not 0 <= alarm_ns < 2**63):
        raise ValueError("its alarm is no time")
    return CheckedAnswer(text=text, alarm_ns=alarm_ns, ranking=_RANKING.validate_python(content["ranking"]))


def _amount(value: Any) -> float:
    number = float(value)
    if not 0 <= number < 2**53:
        raise ValueError("an amount is out of range")
    return number
