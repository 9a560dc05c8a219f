"""Calls to other services, with gRPC's status codes, optional deadlines, pools and circuit breakers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from faultset.collector.runtime.http.client import (
    MAX_AGE_S,
    BrokenError,
    DialError,
    HttpClient,
    Names,
    UnknownHostError,
)
from faultset.collector.runtime.http.status import CallRejectedError, Code, ErrorTexts, FailedDial, RpcError, SpanStyle
from faultset.collector.runtime.http.tracing import Span, Tracing, build_headers
from faultset.collector.runtime.signals import NO_RESPONSE, Metrics
from faultset.collector.spec.features import CircuitBreaker

State = Literal["closed", "half-open", "open"]
FAILURES = frozenset({Code.UNKNOWN, Code.DEADLINE_EXCEEDED, Code.INTERNAL, Code.UNAVAILABLE})
"""Codes that a circuit breaker counts as failures."""
_LEVELS: dict[State, int] = {"closed": 0, "half-open": 1, "open": 2}
_DEADLINE_HEADER = "grpc-timeout"
_UNITS_S = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_MAX_DIGITS = 8
_GRACE_S = 0.02
"""Grace period of an operation, so that its calls with the same deadline fail first."""
_POOL_WAIT_S = 1.0
"""Seconds that a call waits for a connection from the pool."""
_DIAL_TIMEOUT_S = 20.0
_HASTY_S = (0.0005, 0.003)
"""Shortest and longest timeout of a hasty call."""


class Breaker:
    """The circuit breaker of one callee; `changed` is called with each new state."""

    def __init__(
        self,
        settings: CircuitBreaker,
        changed: Callable[[State], None] = lambda state: None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.state: State = "closed"
        self._settings, self._changed, self._clock = settings, changed, clock
        self._failures = self._successes = self._active_calls = 0
        self._opened_s = 0.0

    def admits(self) -> bool:
        """Return whether a call may begin; `record_end` must be called after each admitted call."""
        if self.state == "open" and self._clock() - self._opened_s >= self._settings.open_s:
            self._successes = self._active_calls = 0
            self._become("half-open")
        if self.state == "open" or (self.state == "half-open" and self._active_calls >= self._settings.trials):
            return False
        self._active_calls += 1
        return True

    def record_end(self, code: Code) -> None:
        """Count the end of a call; cancelled calls do not count."""
        self._active_calls = max(0, self._active_calls - 1)
        if self.state == "open" or code == Code.CANCELED:
            return  # the call began before the breaker opened, or was cancelled
        if code in FAILURES:
            self._failures += 1
            if self.state == "half-open" or self._failures >= self._settings.failures:
                self._opened_s = self._clock()
                self._become("open")
            return
        self._failures = 0
        if self.state == "half-open":
            self._successes += 1
            if self._successes >= self._settings.trials:
                self._become("closed")

    def _become(self, state: State) -> None:
        self.state = state
        if state != "half-open":
            self._failures = 0
        self._changed(state)


class Breakers:
    """The circuit breakers of a process by callee, and their metrics; `report` is called with each new state."""

    def __init__(self, settings: Mapping[str, CircuitBreaker], metrics: Metrics, report: Callable[[str, State], None]):
        self._metrics, self._report = metrics, report
        self._breakers = {
            callee: Breaker(setting, functools.partial(self._record_state, callee))
            for callee, setting in settings.items()
        }
        for callee in settings:
            self._export_state(callee, "closed")

    def admits(self, callee: str) -> bool:
        breaker = self._breakers.get(callee)
        if breaker is None or breaker.admits():
            return True
        text = "Calls that an open circuit breaker rejected."
        self._metrics.counter("circuit_breaker_rejected_calls", ("server_address",), text).labels(callee).inc()
        return False

    def record_end(self, callee: str, code: Code) -> None:
        if (breaker := self._breakers.get(callee)) is not None:
            breaker.record_end(code)

    def _record_state(self, callee: str, state: State) -> None:
        self._export_state(callee, state)
        self._report(callee, state)

    def _export_state(self, callee: str, state: State) -> None:
        text = "State of a circuit breaker: 0 closed, 1 half-open, 2 open."
        self._metrics.gauge("circuit_breaker_state", ("server_address",), text).labels(callee).set(_LEVELS[state])


def now() -> float:
    return asyncio.get_running_loop().time()


def earliest(*instants: float | None) -> float | None:
    """Return the earliest of several optional deadlines.

    >>> earliest(None, 3.0, 2.0), earliest(None)
    (2.0, None)
    """
    return min((instant for instant in instants if instant is not None), default=None)


def header_value(left_s: float) -> str:
    """Return the remaining time in the format of the header `grpc-timeout`.

    >>> header_value(0.25), header_value(3600.0)
    ('250000u', '3600000m')
    """
    for unit in ("u", "m", "S"):
        value = max(0, round(left_s / _UNITS_S[unit]))
        if len(str(value)) <= _MAX_DIGITS:
            return f"{value}{unit}"
    return f"{10**_MAX_DIGITS - 1}S"


def time_left(headers: Mapping[str, str]) -> float | None:
    """Return the remaining seconds in a request's header; None if the header is missing or invalid.

    >>> time_left({"grpc-timeout": "250m"}), time_left({"grpc-timeout": "soon"}), time_left({})
    (0.25, None, None)
    """
    text = headers.get(_DEADLINE_HEADER, "")
    digits, unit = text[:-1], text[-1:]
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS and unit in _UNITS_S):
        return None
    return int(digits) * _UNITS_S[unit]


@contextlib.asynccontextmanager
async def within(deadline: float, texts: ErrorTexts) -> AsyncIterator[None]:
    """Cancel the body once a deadline has passed, and raise DEADLINE_EXCEEDED."""
    limit = asyncio.timeout_at(deadline + _GRACE_S)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise RpcError(Code.DEADLINE_EXCEEDED, texts.deadline_passed()) from None


class PoolExhaustedError(Exception):
    """No connection of the pool became free in time."""


class ConnectionPool:
    """A limited number of connections; `kept_share` of the calls return theirs `kept_s` seconds late."""

    def __init__(self, size: int, *, kept_share: float = 0.0, kept_s: float = 0.0):
        self._free = asyncio.Semaphore(size)
        self._kept_share, self._kept_s = kept_share, kept_s

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[None]:
        """Reserve a connection for one call; raise PoolExhaustedError if none becomes free in time."""
        try:
            await asyncio.wait_for(self._free.acquire(), _POOL_WAIT_S)
        except TimeoutError:
            raise PoolExhaustedError from None
        try:
            yield
        finally:
            late_s = self._kept_s if random.random() < self._kept_share else 0.0
            asyncio.get_running_loop().call_later(late_s, self._free.release)


@dataclass(frozen=True, kw_only=True)
class ClientContext:
    """State of a process that its clients of services and stores share."""

    names: Names
    local: str | None
    """Address to connect from; None for any."""
    metrics: Metrics
    texts: ErrorTexts


@dataclass(frozen=True, kw_only=True)
class CallSettings:
    """Settings of the calls of a service."""

    max_age_s: float = MAX_AGE_S
    timeout_s: float | None = None
    """Timeout of calls that specify none; None for no limit."""
    retries: int = 0
    """Number of immediate retries if a call fails with UNAVAILABLE or DEADLINE_EXCEEDED."""
    pool: ConnectionPool | None = None
    hasty_share: float = 0.0
    """Share of the calls with a timeout of 0.5 to 3 ms, which are retried if they time out."""


class Caller:
    """Calls operations of other services by name.

    Parameters
    ----------
    ports
        Port of every service.
    spans
        Attributes and status of the spans of calls.
    breakers
        Circuit breakers of callees.
    report_retry
        Called with the callee and the failure of a hasty call.
    """

    def __init__(
        self,
        context: ClientContext,
        *,
        ports: Mapping[str, int],
        tracing: Tracing,
        settings: CallSettings | None = None,
        spans: SpanStyle | None = None,
        breakers: Breakers | None = None,
        report_retry: Callable[[str, RpcError], None] = lambda callee, error: None,
    ):
        self._settings = settings or CallSettings()
        self._report_retry = report_retry
        self._breakers = breakers or Breakers({}, context.metrics, lambda callee, state: None)
        self._spans = spans or SpanStyle()
        self._ports, self._tracing = ports, tracing
        self.names, self._texts, self._metrics = context.names, context.texts, context.metrics
        self._client = HttpClient(
            local=context.local, names=context.names, dial_timeout_s=_DIAL_TIMEOUT_S, max_age_s=self._settings.max_age_s
        )

    async def call(
        self,
        service: str,
        operation: str,
        body: Any,
        trace: Span | None,
        *,
        span: str | None = None,
        timeout_s: float | None = None,
        at: str | None = None,
        deadline: float | None = None,
    ) -> Any:
        """Return the reply of an operation; raise RpcError if the call fails.

        Parameters
        ----------
        trace
            Parent of the call's span, or of the callee's if the call has none.
        span
            Name of the call's span; None for no span.
        timeout_s
            Seconds to wait for the response; None for the default of this caller.
        at
            `HOST:PORT` to connect to instead of the service's address.
        deadline
            Time of the event loop's clock at which the call is cancelled; the callee receives the remaining time.
        """
        call = functools.partial(self._call, service, operation, body, trace, span=span, at=at, deadline=deadline)
        if random.random() < self._settings.hasty_share:
            hasty_s = random.uniform(*_HASTY_S)
            try:
                return await call(timeout_s=hasty_s)
            except RpcError as error:
                if error.code != Code.DEADLINE_EXCEEDED or not may_repeat(error, deadline):
                    raise
                self._report_retry(service, error)
        timeout_s = self._settings.timeout_s if timeout_s is None else timeout_s
        for _ in range(self._settings.retries):
            try:
                return await call(timeout_s=timeout_s)
            except RpcError as error:
                if not may_repeat(error, deadline):
                    raise
        return await call(timeout_s=timeout_s)

    async def _call(
        self,
        service: str,
        operation: str,
        body: Any,
        trace: Span | None,
        *,
        span: str | None,
        timeout_s: float | None,
        at: str | None,
        deadline: float | None,
    ) -> Any:
        if not self._breakers.admits(service):
            raise CallRejectedError(Code.UNAVAILABLE, self._texts.breaker_open(service))
        client_span = None
        if span is not None:
            client_span = self._tracing.client(span, trace, {**self._spans.call_attributes, "peer.service": service})
        start, status_label, code, failure = time.perf_counter(), NO_RESPONSE, Code.OK, None
        try:
            headers = build_headers(client_span or trace)
            status, reply = await self._post_in_time(at or service, operation, body, headers, timeout_s, deadline)
            status_label = str(status)
            if status == 200:
                return json.loads(reply)
            raise _parse_failure(reply.decode("utf-8"))
        except RpcError as error:
            code, failure = error.code, str(error)
            raise
        except asyncio.CancelledError:
            # the operation may have reached their common deadline first
            if deadline is not None and now() >= deadline:
                code, failure = Code.DEADLINE_EXCEEDED, self._texts.deadline_passed()
            else:
                code, failure = Code.CANCELED, self._texts.call_given_up()
            raise
        finally:
            if client_span is not None:
                if self._spans.reports_outcome:
                    if failure is not None:
                        client_span.fail(failure)
                    client_span.set_attributes(self._spans.outcome_attributes(code))
                client_span.end()
            self._breakers.record_end(service, code)
            self._metrics.client(service, operation, "POST", status_label).observe(time.perf_counter() - start)

    async def _post_in_time(
        self,
        service: str,
        operation: str,
        body: Any,
        headers: dict[str, str],
        timeout_s: float | None,
        deadline: float | None,
    ) -> tuple[int, bytes]:
        timeout_at, pool = None if timeout_s is None else now() + timeout_s, self._settings.pool
        if deadline is not None:
            if (left_s := deadline - now()) <= 0:
                raise RpcError(Code.DEADLINE_EXCEEDED, self._texts.deadline_passed())
            headers[_DEADLINE_HEADER] = header_value(left_s)
        if pool is None and timeout_at is None and deadline is None:
            return await self._post(service, operation, body, headers)
        limit = asyncio.timeout_at(earliest(timeout_at, deadline))
        try:
            async with limit, contextlib.nullcontext() if pool is None else pool.connection():
                return await self._post(service, operation, body, headers)
        except PoolExhaustedError:
            raise RpcError(Code.UNAVAILABLE, self._texts.pool_exhausted()) from None
        except TimeoutError:
            if not limit.expired():
                raise
            is_late = timeout_s is None or (deadline is not None and deadline <= (timeout_at or deadline))
            text = self._texts.deadline_passed() if is_late else self._texts.call_timed_out(timeout_s or 0.0)
            raise RpcError(Code.DEADLINE_EXCEEDED, text) from None

    async def _post(self, service: str, operation: str, body: Any, headers: Mapping[str, str]) -> tuple[int, bytes]:
        host, colon, port_text = service.partition(":")
        port = int(port_text) if colon else self._ports[service]
        request_body = json.dumps(body).encode()
        header_lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        head = (
            f"POST {operation} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n{header_lines}"
            f"Content-Length: {len(request_body)}\r\n\r\n"
        )
        try:
            return await self._client.request(host, port, head.encode(), request_body)
        except DialError as dial_error:
            error = dial_error.error
            if isinstance(error, UnknownHostError):
                # the configured name, because resolving it has changed its case
                error = UnknownHostError(self.names.overrides.get(host, host))
            reason = self._texts.connection_failed(error, f"{self.names.last.get(host, host)}:{port}")
            text = self._texts.dial_failed(service, reason)
            raise RpcError(Code.UNAVAILABLE, text, FailedDial(service, port, error)) from None
        except BrokenError:
            raise RpcError(Code.UNAVAILABLE, self._texts.call_failed(None)) from None

    async def close(self) -> None:
        self._client.close()


def may_repeat(error: RpcError, deadline: float | None) -> bool:
    """Return whether a call that failed with UNAVAILABLE or DEADLINE_EXCEEDED may be retried before the deadline."""
    if isinstance(error, CallRejectedError) or error.code not in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED):
        return False
    return deadline is None or now() < deadline


def _parse_failure(text: str) -> RpcError:
    """Parse the failure in a response, which is JSON from services and plain text from frontends."""
    try:
        reply = json.loads(text)
        return RpcError(Code(reply["code"]), str(reply["message"]))
    except (ValueError, KeyError, TypeError):
        return RpcError(Code.UNKNOWN, text.strip())
