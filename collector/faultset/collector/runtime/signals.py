"""Log lines of a process, and the metrics that a service exports."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal, NoReturn, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import generate_latest

Level = Literal["trace", "info", "warning", "error", "fatal", "panic"]


class LogFormat:
    """How log lines look; an application's persona replaces it by its own."""

    def format_line(self, time_s: float, level: Level, location: str, message: str) -> str:
        """Return a log line without its end."""
        word = {"warning": "WARN", "fatal": "ERROR", "panic": "ERROR"}.get(level, level.upper())
        return f"{timestamp(time_s)} [{word}] {location}: {message}"

    def format_crash(self, location: str, message: str) -> str:
        """Return what a process that ends with `panic` writes to its standard error."""
        return f"{location}: {message}\n"


class Log:
    """Writes lines to the standard output of the process; the lines of one process never interleave.

    Parameters
    ----------
    level
        `trace` writes a line per request; `info` hides these.
    exit_process
        How the process ends; tests put something milder in place of `os._exit`.
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
        """Write a line about a request that makes no sense."""
        self.write("warning", location, message)

    def error(self, location: str, message: str) -> None:
        """Write a line about a failure that the process survives."""
        self.write("error", location, message)

    def panic(self, location: str, message: str) -> NoReturn:
        """Write a line, and a dump on the standard error, and end the process with exit code 2."""
        self.write("panic", location, message)
        raise AssertionError("a panic ends the process")


def write_all(output: int, data: bytes) -> None:
    """Write to a file descriptor at once; a closed reader is ignored."""
    try:
        while data:
            data = data[os.write(output, data) :]
    except OSError:
        pass


def timestamp(time_s: float) -> str:
    """Return a time as log lines have it: UTC with milliseconds."""
    milliseconds = int(time_s * 1000)
    return f"{_second(milliseconds // 1000)}.{milliseconds % 1000:03d}Z"


@lru_cache(maxsize=4)
def _second(time_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time_s))


BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
NO_RESPONSE = "0"
"""Status code of a request that got no answer at all."""

Metric = TypeVar("Metric", Counter, Gauge, Histogram)


class Metrics:
    """Counters of one process; label sets are looked up once and kept."""

    def __init__(self) -> None:
        disable_created_metrics()
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        server = Histogram(
            "http_server_request_duration_seconds",
            "Duration of HTTP server requests.",
            ["http_route", "http_request_method", "http_response_status_code"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        client = Histogram(
            "http_client_request_duration_seconds",
            "Duration of HTTP client requests.",
            ["server_address", "http_route", "http_request_method", "http_response_status_code"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        database = Histogram(
            "db_client_operation_duration_seconds",
            "Duration of database client operations.",
            ["server_address", "db_system_name", "db_operation_name", "db_response_status_code"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        active = Gauge(
            "http_server_active_requests",
            "Number of active HTTP server requests.",
            ["http_request_method"],
            registry=self.registry,
        )
        self._named: dict[str, Counter | Gauge | Histogram] = {}
        self.server = lru_cache(maxsize=None)(server.labels)
        self.client = lru_cache(maxsize=None)(client.labels)
        self.database = lru_cache(maxsize=None)(database.labels)
        self.active = lru_cache(maxsize=None)(active.labels)

    def counter(self, name: str, labels: Sequence[str], text: str) -> Counter:
        """Return a counter of that name, the same for every caller; its name in Prometheus ends in `_total`."""
        return self._get(Counter, name, labels, text)

    def gauge(self, name: str, labels: Sequence[str], text: str) -> Gauge:
        """Return a gauge of that name, the same for every caller."""
        return self._get(Gauge, name, labels, text)

    def histogram(self, name: str, labels: Sequence[str], text: str) -> Histogram:
        """Return a histogram of that name in seconds, the same for every caller."""
        return self._get(Histogram, name, labels, text, buckets=BUCKETS)

    def _get(self, kind: type[Metric], name: str, labels: Sequence[str], text: str, **options: Any) -> Metric:
        if name not in self._named:
            self._named[name] = kind(name, text, tuple(labels), registry=self.registry, **options)
        found = self._named[name]
        assert isinstance(found, kind), f"{name} is a metric of two kinds"
        return found

    def exposition(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)
