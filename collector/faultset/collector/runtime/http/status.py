"""Status codes of calls, error messages, and attributes of spans."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from faultset.collector.runtime.http.client import UnknownHostError

_SERVER_ERROR = 500


class Code(enum.IntEnum):
    """The gRPC status codes that services use."""

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


_STATUS_CLASSES = {
    Code.OK: "2xx",
    Code.CANCELED: "4xx",
    Code.INVALID_ARGUMENT: "4xx",
    Code.NOT_FOUND: "4xx",
    Code.FAILED_PRECONDITION: "4xx",
    Code.UNKNOWN: "0xx",
}
_HTTP_STATUSES = {
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
    """A service to which no connection could be opened, and the exception of the event loop."""

    service: str
    port: int
    error: OSError


class RpcError(Exception):
    """A call failed, in the callee or on the way to it; `dialled` is the failed connection, if that is the reason."""

    def __init__(self, code: Code, description: str, dialled: FailedDial | None = None):
        super().__init__(code, description)
        self.code = code
        self.description = description
        self.dialled = dialled

    def __str__(self) -> str:
        name = "OK" if self.code is Code.OK else self.code.name.title().replace("_", "")
        return f"rpc error: code = {name} desc = {self.description}"


class CallRejectedError(RpcError):
    """An open circuit breaker rejected a call, which is not retried."""


class BadRequest(Exception):
    """An endpoint refused a request with an HTTP status."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


def response_class(code: Code) -> str:
    """Return the class of a code in OpenTracing's interceptor: 2xx, 4xx, 5xx, or 0xx for UNKNOWN."""
    return _STATUS_CLASSES.get(code, "5xx")


def http_status(code: Code) -> int:
    return _HTTP_STATUSES.get(code, 500)


class ErrorTexts:
    """Neutral error messages; personas override them with those of real client libraries."""

    def connection_failed(self, error: BaseException | None, address: str) -> str:
        """Return the text for a connection that could not be opened, from the exception of the event loop."""
        match error:
            case UnknownHostError():
                return f"unknown host {error.host}"
            case TimeoutError():
                return f"connecting to {address} timed out"
            case OSError(strerror=str() as reason) if reason:
                return f"cannot connect to {address}: {reason.lower()}"
            case _:
                return f"cannot connect to {address}: {error or type(error).__name__}"

    def read_timed_out(self, source: str, address: str) -> str:
        """Return the text for a timeout while reading, on a connection between two addresses."""
        return f"no answer from {address} in time"

    def connection_closed(self) -> str:
        """Return the text for a connection that the peer has closed."""
        return "connection closed"

    def call_failed(self, reason: str | None) -> str:
        """Return the description of a call that did not reach its callee or, without a reason, lost its connection."""
        return reason or "the connection was closed before the response"

    def dial_failed(self, service: str, reason: str) -> str:
        """Return the description of a call that could not connect; `reason` is from `connection_failed`."""
        return self.call_failed(reason)

    def call_timed_out(self, timeout_s: float) -> str:
        """Return the description of a call that exceeded its timeout."""
        return f"no answer within {timeout_s:g} s"

    def deadline_passed(self) -> str:
        """Return the description of a request or call whose deadline has passed."""
        return "the deadline has passed"

    def breaker_open(self, service: str) -> str:
        """Return the description of a call that an open circuit breaker rejects."""
        return f"the circuit breaker of {service} is open"

    def breaker_changed(self, service: str, state: str) -> str:
        """Return the log line about a new state of a circuit breaker: open, half-open or closed."""
        return f"the circuit breaker of {service} is {state}"

    def pool_exhausted(self) -> str:
        """Return the description of a call that got no connection from the pool."""
        return "the connection pool is exhausted: no connection became free in time"

    def unknown_operation(self, operation: str) -> str:
        """Return the description of a call to an operation that the service does not have."""
        return f"unknown service {operation.strip('/').partition('/')[0]}"

    def call_given_up(self) -> str:
        """Return the description of a call that its caller cancelled."""
        return "cancelled by the caller"


class GoErrorTexts(ErrorTexts):
    """Base class for personas with the error messages of Go's net package and grpc-go."""

    def connection_failed(self, error: BaseException | None, address: str) -> str:
        match error:
            case UnknownHostError():
                return f"dial tcp: lookup {error.host}: no such host"
            case ConnectionRefusedError():
                return f"dial tcp {address}: connect: connection refused"
            case ConnectionResetError():
                return f"dial tcp {address}: connect: connection reset by peer"
            case TimeoutError():
                return f"dial tcp {address}: i/o timeout"
            case OSError(strerror=str() as reason) if reason:
                return f"dial tcp {address}: connect: {reason.lower()}"
            case _:
                return f"dial tcp {address}: {error}"

    def call_failed(self, reason: str | None) -> str:
        if reason is None:
            return "transport is closing"
        return f'connection error: desc = "transport: Error while dialing {reason}"'

    def deadline_passed(self) -> str:
        return "context deadline exceeded"

    def call_given_up(self) -> str:
        return "context canceled"


@dataclass(frozen=True, kw_only=True)
class SpanStyle:
    """Attributes and status of spans; personas may choose another style."""

    call_component: str | None = "gRPC"
    """Attribute `component` of the spans of calls between services, on both sides; None for no attribute."""
    endpoint_component: str | None = "net/http"
    """Attribute `component` of the spans of a frontend's endpoints; None for no attribute."""
    reports_outcome: bool = True
    """Whether the spans of calls and stores have a status, and an error event if they failed."""
    convention: Literal["opentracing", "opentelemetry"] = "opentracing"
    """The instrumentation that spans imitate. With OpenTracing's interceptor for gRPC, only codes of class 5xx mark the
    span of a callee as an error, and spans of endpoints never are. With OpenTelemetry, every failed call and every
    endpoint that responds with 500 or more is an error."""

    @property
    def call_attributes(self) -> dict[str, str]:
        return {} if self.call_component is None else {"component": self.call_component}

    @property
    def endpoint_attributes(self) -> dict[str, str]:
        return {} if self.endpoint_component is None else {"component": self.endpoint_component}

    def outcome_attributes(self, code: Code) -> dict[str, Any]:
        if self.convention == "opentelemetry":
            return {"rpc.grpc.status_code": int(code)}
        return {"response_code": int(code), "response_class": response_class(code)}

    def is_server_error(self, code: Code) -> bool:
        """Return whether the span of a callee that responds with a code is an error."""
        if self.convention == "opentelemetry":
            return code is not Code.OK
        return response_class(code) == "5xx"

    def is_endpoint_error(self, status: int) -> bool:
        """Return whether the span of an endpoint that responds with an HTTP status is an error."""
        return self.convention == "opentelemetry" and status >= _SERVER_ERROR
