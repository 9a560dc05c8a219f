"""The persona of the Astronomy Shop's services: programs in a dozen languages, each with its own log format."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from types import MappingProxyType
from typing import NamedTuple

from faultset.collector.runtime.http.status import GoErrorTexts, RpcError, SpanStyle
from faultset.collector.runtime.persona import Event, Line, Persona
from faultset.collector.runtime.signals import Level, timestamp

_IDS = re.compile(r" ?trace_id=([0-9a-f]{32}) span_id=([0-9a-f]{16})$")
_PINO: dict[Level, int] = {"trace": 10, "info": 30, "warning": 40, "error": 50, "fatal": 60, "panic": 60}
_DOTNET: dict[Level, str] = {
    "trace": "trce", "info": "info", "warning": "warn", "error": "fail", "fatal": "crit", "panic": "crit",
}  # fmt: skip
_WORDS: dict[Level, str] = {
    "trace": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR", "fatal": "FATAL", "panic": "FATAL",
}  # fmt: skip

_LINES: dict[Event, tuple[Line, ...]] = {
    "login-failed": (Line("fatal", "{location}", "cannot use {store}: {error}"),),
    "filling-failed": (Line("fatal", "{location}", "cannot use {store}: {error}"),),
    "setting-missing": (Line("fatal", "{location}", 'Environment Variable Not Set: "{variable}"'),),
    "serving": (Line("info", "{location}", "service {service} listens on port {port}"),),
    "port-taken": (Line("fatal", "{location}", "cannot listen on port {taken_port}: {error}"),),
}


class AstronomyPersona(GoErrorTexts, Persona):
    """Lines in the formats of the original's loggers, and the messages of gRPC in Go."""

    lines = MappingProxyType(_LINES)
    spans = SpanStyle(call_component=None, endpoint_component=None, convention="opentelemetry")

    def format_line(self, time_s: float, level: Level, location: str, message: str) -> str:
        service, _, source = location.partition("/")
        match = _IDS.search(message)
        text = message[: match.start()] if match else message
        ids = {"trace_id": match[1], "span_id": match[2]} if match else {}
        return _SHAPES.get(service, _text)(_Record(time_s, level, service, source or service, text, ids))

    def format_failure(self, error: RpcError) -> str:
        """Return the body of a failed request: the description, which the frontend forwards."""
        return error.description

    def call_failed(self, reason: str | None) -> str:
        if reason is None:
            return "error reading from server: EOF"
        return f'connection error: desc = "transport: Error while dialing: {reason}"'


class _Record(NamedTuple):
    """The parts of a log line; `ids` are those of the span, if any."""

    time_s: float
    level: Level
    service: str
    source: str
    text: str
    ids: dict[str, str]

    @property
    def word(self) -> str:
        return _WORDS[self.level]

    @property
    def end(self) -> str:
        return "".join([self.text, *(f" {name}={value}" for name, value in self.ids.items())])

    @property
    def milliseconds(self) -> str:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self.time_s))
        return f"{stamp},{int(self.time_s * 1000) % 1000:03d}"

    @property
    def microseconds(self) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self.time_s))
        return f"{stamp}.{int(self.time_s * 1_000_000) % 1_000_000:06d}"


def _logrus(line: _Record) -> str:
    fields = {"message": line.text, "severity": line.word.lower(), "timestamp": timestamp(line.time_s)}
    return json.dumps({**fields, **line.ids})


def _pino(line: _Record) -> str:
    host = os.environ.get("POD_NAME", line.service)
    fields = {"pid": os.getpid(), "hostname": host, "service.name": line.service}
    return json.dumps(
        {"level": _PINO[line.level], "time": int(line.time_s * 1000), **fields, **line.ids, "msg": line.text}
    )


def _zap(line: _Record) -> str:
    fields = {"level": line.word.lower(), "ts": timestamp(line.time_s), "caller": line.source}
    return json.dumps({**fields, "msg": line.text, "component": line.service, **line.ids})


def _tracing(line: _Record) -> str:
    fields = {"timestamp": timestamp(line.time_s), "level": line.word, "fields": {"message": line.text}}
    return json.dumps({**fields, "target": f"{line.service}::{line.source}", **line.ids})


def _log4j(line: _Record) -> str:
    return f"{line.milliseconds} {line.word} {line.source} - {line.end}"


def _python(line: _Record) -> str:
    ids = line.ids or {"trace_id": "0", "span_id": "0"}
    context = f"[trace_id={ids['trace_id']} span_id={ids['span_id']} resource.service.name={line.service}]"
    return f"{line.milliseconds} {line.word} [main] [{line.source}] {context} - {line.text}"


def _dotnet(line: _Record) -> str:
    return f"{_DOTNET[line.level]}: {line.source}[0] {line.end}"


def _ruby(line: _Record) -> str:
    return f"{line.word[0]}, [{line.microseconds} #{os.getpid()}]  {line.word} -- : {line.end}"


def _monolog(line: _Record) -> str:
    return f"[{line.microseconds}+00:00] {line.service}.{line.word}: {line.end}"


def _envoy(line: _Record) -> str:
    word = {"WARN": "warning", "FATAL": "critical"}.get(line.word, line.word.lower())
    return f"[{line.milliseconds.replace(',', '.')}][{os.getpid()}][{word}][{line.source}] {line.end}"


def _text(line: _Record) -> str:
    word = {"DEBUG": "TRACE", "FATAL": "ERROR"}.get(line.word, line.word)
    return f"{timestamp(line.time_s)} [{word}] {line.source}: {line.end}"


_SHAPES: dict[str, Callable[[_Record], str]] = {
    "accounting": _dotnet,
    "ad": _log4j,
    "cart": _dotnet,
    "checkout": _logrus,
    "email": _ruby,
    "flagd": _zap,
    "fraud-detection": _log4j,
    "frontend-proxy": _envoy,
    "load-generator": _python,
    "payment": _pino,
    "product-catalog": _logrus,
    "quote": _monolog,
    "recommendation": _python,
    "shipping": _tracing,
}
"""Log formats by service; the others write plain text."""

PERSONA = AstronomyPersona()
