"""Logs and metrics of a service."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import generate_latest

Level = Literal["trace", "info", "warning", "error", "fatal", "panic"]


class LogFormat:
    """Format of log lines; each imitated program overrides it."""

    def format_line(self, time_s: float, level: Level, location: str, message: str) -> str:
        """Return a log line without its line break."""
        label = {"warning": "WARN", "fatal": "ERROR", "panic": "ERROR"}.get(level, level.upper())
        return f"{timestamp(time_s)} [{label}] {location}: {message}"

    def format_crash(self, location: str, message: str) -> str:
        """Return the text that a panicking process writes to standard error."""
        return f"{location}: {message}\n"


class Log:
    """Writes lines to the standard output of the process; the lines of one process never interleave.

    The level `trace` logs a line per request; `info` omits these.
    """

    def __init__(
        self,
        form: LogFormat,
        level: str = "trace",
        *,
        exit_process: Callable[[int], object] = os._exit,
        output: int = 1,
    ):
        self.traces = level == "trace"
        self._form = form
        self._exit = exit_process
        self._output = output

    def write(self, level: Level, location: str, message: str) -> None:
        """Write a line; one of level `fatal` ends the process with exit code 1, one of level `panic` with 2."""
        if level == "trace" and not self.traces:
            return
        line = self._form.format_line(time.time(), level, location, message)
        write_all(self._output, f"{line}\n".encode())
        if level == "panic":
            write_all(2, self._form.format_crash(location, message).encode())
            self._exit(2)
        elif level == "fatal":
            self._exit(1)

    def trace(self, location: str, message: str) -> None:
        """Write a line that the level `info` hides."""
        self.write("trace", location, message)

    def warning(self, location: str, message: str) -> None:
        self.write("warning", location, message)

    def error(self, location: str, message: str) -> None:
        self.write("error", location, message)

    def panic(self, location: str, message: str) -> NoReturn:
        """Write a line, then a crash text to standard error; end the process with exit code 2."""
        self.write("panic", location, message)
        raise AssertionError("a panic ends the process")


def write_all(output: int, data: bytes) -> None:
    """Write all data to a file descriptor; ignore errors, such as a closed pipe."""
    try:
        while data:
            data = data[os.write(output, data) :]
    except OSError:
        pass


def timestamp(time_s: float) -> str:
    """Return a time in the format of log lines: UTC with milliseconds."""
    milliseconds = int(time_s * 1000)
    return f"{_format_second(milliseconds // 1000)}.{milliseconds % 1000:03d}Z"


@lru_cache(maxsize=4)
def _format_second(time_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time_s))


HTTP_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
DATABASE_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
"""Upper bounds that OpenTelemetry's semantic conventions recommend for durations of HTTP requests and database calls.

https://opentelemetry.io/docs/specs/semconv/http/http-metrics/,
https://opentelemetry.io/docs/specs/semconv/database/database-metrics/
"""
NO_RESPONSE = "0"
"""Status code of a request that got no response."""

Metric = TypeVar("Metric", Counter, Gauge, Histogram)


class RequestHistogram(NamedTuple):
    """A histogram of served requests as an original program exports it, in seconds."""

    name: str
    text: str
    label: str
    values: Mapping[str, str]
    """Name of its only label, and the label's value for each route. Other routes are left out."""
    buckets: tuple[float, ...]


class Metrics:
    """Metrics of one process, with a cache of label sets; `original` is a second histogram of requests."""

    def __init__(self, original: RequestHistogram | None = None) -> None:
        disable_created_metrics()
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)

        def declare(kind: Any, name: str, text: str, *labels: str, **options: Any) -> Any:
            return lru_cache(maxsize=None)(kind(name, text, labels, registry=self.registry, **options).labels)

        request_labels = ("http_route", "http_request_method", "http_response_status_code")
        self._server = declare(
            Histogram, "http_server_request_duration_seconds", "Duration of HTTP server requests.", *request_labels,
            buckets=HTTP_BUCKETS,
        )  # fmt: skip
        self.client = declare(
            Histogram, "http_client_request_duration_seconds", "Duration of HTTP client requests.", "server_address",
            *request_labels, buckets=HTTP_BUCKETS,
        )  # fmt: skip
        self.database = declare(
            Histogram, "db_client_operation_duration_seconds", "Duration of database client operations.",
            "server_address", "db_system_name", "db_operation_name", "db_response_status_code",
            buckets=DATABASE_BUCKETS,
        )  # fmt: skip
        self.active = declare(
            Gauge, "http_server_active_requests", "Number of active HTTP server requests.", "http_request_method"
        )
        self._metrics_by_name: dict[str, Counter | Gauge | Histogram] = {}
        self._original: dict[str, Histogram] = {}
        if original is not None:
            name, text, label, values, buckets = original
            histogram = Histogram(name, text, [label], buckets=buckets, registry=self.registry)
            self._original = {route: histogram.labels(value) for route, value in values.items()}

    def observe_request(self, route: str, method: str, status: str, duration_s: float) -> None:
        self._server(route, method, status).observe(duration_s)
        if (original := self._original.get(route)) is not None:
            original.observe(duration_s)

    def counter(self, name: str, labels: Sequence[str], text: str) -> Counter:
        """Return the counter of this name, the same for every caller; Prometheus adds `_total` to the name."""
        return self._get(Counter, name, labels, text)

    def gauge(self, name: str, labels: Sequence[str], text: str) -> Gauge:
        return self._get(Gauge, name, labels, text)

    def histogram(self, name: str, labels: Sequence[str], text: str) -> Histogram:
        """Return the histogram of this name, in seconds, the same for every caller."""
        return self._get(Histogram, name, labels, text, buckets=Histogram.DEFAULT_BUCKETS)

    def _get(self, kind: type[Metric], name: str, labels: Sequence[str], text: str, **options: Any) -> Metric:
        if name not in self._metrics_by_name:
            self._metrics_by_name[name] = kind(name, text, tuple(labels), registry=self.registry, **options)
        metric = self._metrics_by_name[name]
        assert isinstance(metric, kind), f"the metric {name} already exists as another type"
        return metric

    def exposition(self) -> bytes:
        return generate_latest(self.registry)
