"""Outcome of a call between services: gRPC's codes and texts, carried over HTTP."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Code(enum.IntEnum):
    """The gRPC status codes that occur."""

    OK = 0
    CANCELED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    FAILED_PRECONDITION = 9
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


_NAMES = {
    Code.OK: "OK",
    Code.CANCELED: "Canceled",
    Code.UNKNOWN: "Unknown",
    Code.INVALID_ARGUMENT: "InvalidArgument",
    Code.DEADLINE_EXCEEDED: "DeadlineExceeded",
    Code.NOT_FOUND: "NotFound",
    Code.FAILED_PRECONDITION: "FailedPrecondition",
    Code.UNIMPLEMENTED: "Unimplemented",
    Code.INTERNAL: "Internal",
    Code.UNAVAILABLE: "Unavailable",
}
_CLASSES = {
    Code.OK: "2xx",
    Code.CANCELED: "4xx",
    Code.INVALID_ARGUMENT: "4xx",
    Code.NOT_FOUND: "4xx",
    Code.FAILED_PRECONDITION: "4xx",
    Code.UNKNOWN: "0xx",
}
_HTTP = {
    Code.OK: 200,
    Code.CANCELED: 499,
    Code.INVALID_ARGUMENT: 400,
    Code.NOT_FOUND: 404,
    Code.FAILED_PRECONDITION: 400,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
    Code.DEADLINE_EXCEEDED: 504,
}


class FailedDial(NamedTuple):
    """A connection to a service that could not be made, and what the event loop raised."""

    service: str
    port: int
    error: OSError


class RpcError(Exception):
    """A call that failed, in the callee or on the way to it.

    Attributes
    ----------
    dialled
        The connection that could not be made, when that is why.
    """

    def __init__(self, code: Code, description: str, dialled: FailedDial | None = None):
        super().__init__(code, description)
        self.code = code
        self.description = description
        self.dialled = dialled

    def __str__(self) -> str:
        return f"rpc error: code = {_NAMES[self.code]} desc = {self.description}"


class CallRejectedError(RpcError):
    """A call that an open circuit breaker does not let through, and that is not worth a repetition."""


class BadRequest(Exception):
    """A request that its endpoint refuses.

    Attributes
    ----------
    status:
        HTTP status of the answer.
    """

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


def response_class(code: Code) -> str:
    """Return the class that the tracing interceptor gives a code: 2xx, 4xx, 5xx, or 0xx when it knows none."""
    return _CLASSES.get(code, "5xx")


def http_status(code: Code) -> int:
    """Return the HTTP status that carries a code."""
    return _HTTP.get(code, 500)
