"""The persona of the Astronomy Shop's services: programs in a dozen languages, each with its own log format."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from types import MappingProxyType

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
    """Lines in the formats of the original's loggers, and the texts of gRPC in Go."""

    lines = MappingProxyType(_LINES)
    spans = SpanStyle(call_component=None, endpoint_component=None, convention="opentelemetry")

    def format_line(self, time_s: float, level: Level, location: str, message: str) -> str:
        service, _, source = location.partition("/")
        match = _IDS.search(message)
        text = message[: match.start()] if match else message
        ids = {"trace_id": match[1], "span_id": match[2]} if match else {}
        shape = _SHAPES.get(service, _text)
        return shape(time_s, level, service, source or service, text, ids)

    def format_failure(self, error: RpcError) -> str:
        """Return the body of a failed request: the description, which the frontend forwards."""
        return error.description

    def call_failed(self, reason: str | None) -> str:
        if reason is None:
            return "error reading from server: EOF"
        return f'connection error: desc = "transport: Error while dialing: {reason}"'


Shape = Callable[[float, Level, str, str, str, dict[str, str]], str]


def _logrus(time_s: float, level: Level, service: str, source: str, text: str, ids: dict[str, str]) -> str:
    return json.dumps({"message": text, "severity": _WORDS[level].lower(), "timestamp": timestamp(time_s), **ids})


def _pino(time_s: float, level: Level, service: str, source: str, text: str, ids: dict[str, str]) -> str:
    fields = {"pid": os.getpid(), "hostname": os.environ.get("POD_NAME", service), "service.name": service}
    return json.dumps({"level": _PINO[level], "time": int(time_s * 1000), **fields, **ids, "msg": text})


def _zap(time_s: float, level: Level, service: str, source: str, text: str, ids: dict[str, str]) -> str:
    fields = {"level": _WORDS[level].lower(), "ts": timestamp(time_s), "caller": source}
    return json.dumps({**fields, "msg": text, "component": service, **ids})


def _tracing(time_s: float, level: Level, service: str, source: str, text: str, ids: dict[str, str]) -> str:
    fields = {"timestamp": timestamp(time_s), "level": _WORDS[level]}
    return json.dumps({**fields, "fields": {"message": text}, "target": f"{service}::{source}", **ids})


def _log4j(time_s: float, level: Level, service: str, source: str, text: str, ids: dict[str, str]) -> str:
    return f"{_format_milliseconds(time_s)} {_WORDS[level]} {source} - {text}{_suffix(ids)}"


def _python(time_s: float, level: Level, service: str, source: str, text: str, ids: dict[str, str]) -> str:
    span_ids = ids or {"trace_id": "0", "span_id": "0"}
    context = f"[trace_id={span_ids['trace_id']} span_id={span_ids['span_id']} resource.service.name={service}]"
    return f"{_format_milliseconds(time_s)} {_WORDS[level]} [main] [{source}] {context} - {text}"


def _dotnet(time_s: float, level: Level, service: str, source: str, text: str, ids: dict[str, str]) -> str:
    return f"{_DOTNET[level]}: {source}[0] {text}{_suffix(ids)}"


def _ruby(time_s: float, level: Level, service: str, source: str, text: str, ids: dict[str, str]) -> str:
    word, moment = _WORDS[level], _format_microseconds(time_s)
    return f"{word[0]}, [{moment} #{os.getpid()}]  {word} -- : {text}{_suffix(ids)}"


def _monolog(time_s: float, level: Level, service: str, source: str, text: str, ids: dict[str, str]) -> str:
    return f"[{_format_microseconds(time_s)}+00:00] {service}.{_WORDS[level]}: {text}{_suffix(ids)}"


def _envoy(time_s: float, level: Level, service: str, source: str, text: str, ids: dict[str, str]) -> str:
    word = {"WARN": "warning", "FATAL": "critical"}.get(_WORDS[level], _WORDS[level].lower())
    moment = _format_milliseconds(time_s).replace(",", ".")
    return f"[{moment}][{os.getpid()}][{word}][{source}] {text}{_suffix(ids)}"


def _text(time_s: float, level: Level, service: str, source: str, text: str, ids: dict[str, str]) -> str:
    word = {"DEBUG": "TRACE", "FATAL": "ERROR"}.get(_WORDS[level], _WORDS[level])
    return f"{timestamp(time_s)} [{word}] {source}: {text}{_suffix(ids)}"


def _suffix(ids: dict[str, str]) -> str:
    return "".join(f" {name}={value}" for name, value in ids.items())


def _format_milliseconds(time_s: float) -> str:
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(time_s))},{int(time_s * 1000) % 1000:03d}"


def _format_microseconds(time_s: float) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(time_s))}.{int(time_s * 1_000_000) % 1_000_000:06d}"


_SHAPES: dict[str, Shape] = {
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
"""Persona of all services."""
