"""Texts of failed connections and calls, as they stand in log lines, spans and answers."""

from __future__ import annotations

from faultset.collector.runtime.http.names import UnknownHostError


class ErrorTexts:
    """Texts that no client library in particular has; an application's persona replaces them by its own."""

    def connection_failed(self, error: BaseException | None, address: str) -> str:
        """Return the text for a connection that could not be made.

        Parameters
        ----------
        error
            What the event loop raised.
        address
            Address and port.
        """
        match error:
            case UnknownHostError():
                return f"there is no host {error.host}"
            case TimeoutError():
                return f"no connection to {address} in time"
            case OSError(strerror=str() as reason) if reason:
                return f"no connection to {address}: {reason.lower()}"
            case _:
                return f"no connection to {address}: {error or type(error).__name__}"

    def read_timed_out(self, source: str, address: str) -> str:
        """Return the text for an answer that did not come in time, on a connection between two addresses."""
        return f"no answer from {address} in time"

    def connection_closed(self) -> str:
        """Return the text for a connection that the other side has closed."""
        return "connection closed"

    def call_failed(self, reason: str | None) -> str:
        """Return the description of a call that did not reach its callee, or (without a reason) broke on the way."""
        return reason or "the connection was closed before the answer"

    def dial_failed(self, service: str, reason: str) -> str:
        """Return the description of a call whose connection could not be made.

        Parameters
        ----------
        service
            Name of the callee.
        reason
            What `connection_failed` says.
        """
        return self.call_failed(reason)

    def call_timed_out(self, timeout_s: float) -> str:
        """Return the description of a call whose answer did not come in the time that its caller gives it."""
        return f"no answer within {timeout_s:g} s"

    def deadline_passed(self) -> str:
        """Return the description of a request or call whose deadline has passed."""
        return "the deadline has passed"

    def breaker_open(self, service: str) -> str:
        """Return the description of a call that an open circuit breaker does not let through."""
        return f"the circuit breaker of {service} is open"

    def breaker_changed(self, service: str, state: str) -> str:
        """Return the line that is logged when the circuit breaker of a callee becomes open, half-open or closed."""
        return f"the circuit breaker of {service} is {state}"

    def pool_exhausted(self) -> str:
        """Return the description of a call for which no connection of the process's pool became free."""
        return "the connection pool is exhausted: no connection became free in time"

    def unknown_operation(self, operation: str) -> str:
        """Return the answer of a service to a call of an operation that it does not have."""
        return f"unknown service {operation.strip('/').partition('/')[0]}"

    def call_given_up(self) -> str:
        """Return the description of a call whose caller has gone."""
        return "cancelled by the caller"
