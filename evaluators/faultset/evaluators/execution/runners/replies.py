"""Replies of method processes as bytes, and back: whatever a method wrote instead is one error."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from faultset.evaluators.execution.runners.messages import CheckedAnswer, RunnerReply

HEADER_BYTES = 64 << 20
MODEL_BYTES = 1 << 30


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
        "reason": reply.reason,
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


def read_reply(header: bytes, model: bytes, number: int) -> RunnerReply:
    """Read a reply and check every part of it.

    Raises
    ------
    UnreadableReply
        The bytes are no reply to the request of that number.
    """
    try:
        content = json.loads(header)
        if content["number"] != number:
            raise ValueError(f"it is numbered {content['number']!r}")
        if content["status"] not in ("ok", "invalid", "error"):
            raise ValueError("its status is unknown")
        return RunnerReply(
            number=number,
            status=content["status"],
            answer=None if content["answer"] is None else _answer(content["answer"]),
            model=model,
            reason=str(content["reason"])[:1000],
            seconds=_amount(content["seconds"]),
            cpu_seconds=_amount(content["cpu_seconds"]),
            peak_bytes=round(_amount(content["peak_bytes"])),
        )
    except (ValueError, TypeError, KeyError, RecursionError, AttributeError, OverflowError) as error:
        raise UnreadableReply(str(error)[:100] or type(error).__name__) from None


def _answer(content: Any) -> CheckedAnswer:
    text, alarm_ns = content["text"], content["alarm_ns"]
    if not isinstance(json.loads(text), dict):
        raise ValueError("its answer is no object")
    if alarm_ns is not None and (type(alarm_ns) is not int or not 0 <= alarm_ns < 2**63):
        raise ValueError("its alarm is no time")
    ranking = {name: float(score) for name, score in content["ranking"].items()}
    if not all(math.isfinite(score) for score in ranking.values()):
        raise ValueError("a score is not finite")
    return CheckedAnswer(text=text, alarm_ns=alarm_ns, ranking=ranking)


def _amount(value: Any) -> float:
    number = float(value)
    if not 0 <= number < 2**53:
        raise ValueError("an amount is out of range")
    return number
