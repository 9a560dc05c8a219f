"""Calls as lines of text: a request is `NAME JSON`, its answer `result JSON` or `error JSON`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from faultset.collector.ipc.messages import (
    AnswerT,
    InvalidMessage,
    Request,
    decode,
    decode_value,
    encode,
    encode_value,
)
from faultset.core.errors import PlatformError

Handlers = Mapping[type[Request[Any]], Callable[[Any], Any]]
"""What a process does for each type of request that it serves."""


def request_line(request: Request[Any]) -> bytes:
    """Return a request as it is sent."""
    return type(request).__name__.encode() + b" " + encode(request) + b"\n"


def read_request(line: bytes, handlers: Handlers) -> Request[Any]:
    """Return the request of a line; raise InvalidMessage when it is none of those that are served."""
    name, _, body = line.partition(b" ")
    for kind in handlers:
        if kind.__name__.encode() == name:
            return decode(kind, body)
    served = ", ".join(sorted(kind.__name__ for kind in handlers))
    raise InvalidMessage(f"a request must be one of {served}; found {name[:80].decode(errors='replace')!r}")


def result_line(request: Request[Any], result: Any) -> bytes:
    """Return the answer to a request as it is sent."""
    return b"result " + encode_value(request.answer_type(), result) + b"\n"


def error_line(error: Exception | str) -> bytes:
    """Return as it is sent that a request could not be done, and why."""
    known = isinstance(error, str | PlatformError)
    return b"error " + encode_value(str, str(error) if known else f"{type(error).__name__}: {error}") + b"\n"


def read_answer(request: Request[AnswerT], line: bytes, process: str) -> AnswerT:
    """Return the answer in a line; raise PlatformError when it is an error or no answer to this request."""
    word, _, body = line.partition(b" ")
    if word == b"result":
        return decode_value(request.answer_type(), body)
    if word == b"error":
        raise PlatformError(f"{process} could not do {type(request).__name__}: {decode_value(str, body)}")
    raise InvalidMessage(f"an answer of {process} must begin with result or error; found {line[:80]!r}")
