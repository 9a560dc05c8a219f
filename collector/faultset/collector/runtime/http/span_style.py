"""What the spans of an application's programs say beside their names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from faultset.collector.runtime.http.status import Code, response_class

_SERVER_ERROR = 500


@dataclass(frozen=True, kw_only=True)
class SpanStyle:
    """What spans say beside their names; an application's persona may have another one.

    Attributes
    ----------
    call_component
        The attribute `component` of the spans of calls between services, on both sides; none without.
    endpoint_component
        That of the spans of a frontend's endpoints.
    tell_outcome
        Whether spans of calls and of stores carry the status, and those that failed an error.
    convention
        Whose instrumentation made them. With OpenTracing's interceptor for gRPC, the span of the callee is an
        error for codes of class 5xx only, and that of an endpoint never; with OpenTelemetry's, whatever failed is,
        and endpoints that answer 500 or more.
    """

    call_component: str | None = "gRPC"
    endpoint_component: str | None = "net/http"
    tell_outcome: bool = True
    convention: Literal["opentracing", "opentelemetry"] = "opentracing"

    @property
    def call_attributes(self) -> dict[str, str]:
        """Attributes of the spans of calls."""
        return {} if self.call_component is None else {"component": self.call_component}

    @property
    def endpoint_attributes(self) -> dict[str, str]:
        """Attributes of the spans of endpoints."""
        return {} if self.endpoint_component is None else {"component": self.endpoint_component}

    def outcome_attributes(self, code: Code) -> dict[str, Any]:
        """Return the attributes that tell how a call ended."""
        if self.convention == "opentelemetry":
            return {"rpc.grpc.status_code": int(code)}
        return {"response_code": int(code), "response_class": response_class(code)}

    def is_server_error(self, code: Code) -> bool:
        """Say whether the span of a callee that answers with a code is an error."""
        if self.convention == "opentelemetry":
            return code is not Code.OK
        return response_class(code) == "5xx"

    def is_endpoint_error(self, status: int) -> bool:
        """Say whether the span of an endpoint that answers with an HTTP status is an error."""
        return self.convention == "opentelemetry" and status >= _SERVER_ERROR
