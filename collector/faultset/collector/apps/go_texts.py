"""Error texts of Go's net package and grpc-go, for personas of applications written in Go."""

from __future__ import annotations

from faultset.collector.runtime.http.client import UnknownHostError
from faultset.collector.runtime.http.status import ErrorTexts


class GoErrorTexts(ErrorTexts):
    """Base class for personas with the error texts of Go's net package and grpc-go."""

    def connection_failed(self, error: BaseException | None, address: str) -> str:
        """Return the error text of Go's net package."""
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
        """Return the error text of grpc-go."""
        if reason is None:
            return "transport is closing"
        return f'connection error: desc = "transport: Error while dialing {reason}"'

    def deadline_passed(self) -> str:
        """Return the error text of grpc-go."""
        return "context deadline exceeded"

    def call_given_up(self) -> str:
        """Return the error text of grpc-go."""
        return "context canceled"
