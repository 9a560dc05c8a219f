"""Log lines as the programs of an application print them: their own stamp and level, and trace ids."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)"
_ZEROLOG = re.compile(rf"{_STAMP} (TRC|DBG|INF|WRN|ERR|FTL|PNC) ")
_BRACKETS = re.compile(rf"{_STAMP} \[(TRACE|DEBUG|INFO|WARN|ERROR)\]\s+")
_BOOST = re.compile(r"\[\d{4}-\w{3}-\d\d \d\d:\d\d:\d\d\.\d+\] <(trace|debug|info|warning|error|fatal)>: ")
_NGINX = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[(debug|info|notice|warn|error|crit|alert|emerg)\] ")
_THRIFT = re.compile(r"(Thrift): \w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4} ")
"""What the library says by itself: failures only, without a level."""
_LOG4J = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARN|ERROR|FATAL) ")
"""Log4j and Python's logging alike."""
_DOTNET = re.compile(r"(trce|dbug|info|warn|fail|crit): ")
_RUBY = re.compile(r"[DIWEF], \[[^\]]*\]  ?(DEBUG|INFO|WARN|ERROR|FATAL) -- [^:]*: ")
_MONOLOG = re.compile(rf"\[{_STAMP}\] [\w.-]+\.(DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|CRITICAL|FATAL): ")
_ENVOY = re.compile(
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+\]\[\d+\]\[(trace|debug|info|warning|error|critical)\]\[\S+\] "
)
_UNIFIED = re.compile(r"\[\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3} [+-]\d\d:\d\d\] \[(DEBUG|INFO|WARN|ERROR|FATAL)\] ")
"""The format that the programs of TiDB share."""
_KLOG = re.compile(r"([IWEF])\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ ")
_REDIS = re.compile(r"\d+:[XCSM] \d\d \w{3} \d{4} \d\d:\d\d:\d\d\.\d+ ([.*#-]) ")
_HEX_TRACE, _HEX_SPAN = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9a-f]{16}")
_TRACE = re.compile(r"\btrace_id=([0-9a-f]{32})\b")
_SPAN = re.compile(r"\bspan_id=([0-9a-f]{16})\b")

_LEVELS = {
    "TRC": "trace", "DBG": "debug", "INF": "info", "WRN": "warning", "ERR": "error", "FTL": "fatal", "PNC": "fatal",
    "TRACE": "trace", "DEBUG": "debug", "INFO": "info", "WARN": "warning", "ERROR": "error",
    ".": "trace", "-": "debug", "*": "info", "#": "warning", "Thrift": "error",
    "trace": "trace", "debug": "debug", "info": "info", "warning": "warning", "error": "error", "fatal": "fatal",
    "FATAL": "fatal", "CRITICAL": "fatal", "NOTICE": "info", "WARNING": "warning", "critical": "fatal",
    "trce": "trace", "dbug": "debug", "fail": "error", "panic": "fatal", "dpanic": "fatal",
    "I": "info", "W": "warning", "E": "error", "F": "fatal",
    "notice": "info", "warn": "warning", "crit": "fatal", "alert": "fatal", "emerg": "fatal",
}  # fmt: skip


_SHAPES = (
    _ZEROLOG,
    _BRACKETS,
    _BOOST,
    _NGINX,
    _THRIFT,
    _LOG4J,
    _DOTNET,
    _RUBY,
    _MONOLOG,
    _ENVOY,
    _UNIFIED,
    _KLOG,
    _REDIS,
)
_PINO = {10: "trace", 20: "debug", 30: "info", 40: "warning", 50: "error", 60: "fatal"}
_LEVEL_KEYS, _MESSAGE_KEYS = ("severity", "level", "log.level"), ("message", "msg", "body")
_TRACE_KEYS, _SPAN_KEYS = ("trace_id", "traceId", "TraceId"), ("span_id", "spanId", "SpanId")


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """One line, taken apart."""

    level: str | None
    message: str
    trace_id: str | None = None
    span_id: str | None = None


def parse_line(text: str) -> LogLine:
    """Take a line apart; one in no known shape is all message and has no level."""
    if text.startswith("{") and (found := _json_line(text)) is not None:
        return found
    level = None
    for shape in _SHAPES:
        match = shape.match(text)
        if match:
            level, text = _LEVELS[match[1]], text[match.end() :]
            break
    trace, span = _TRACE.search(text), _SPAN.search(text)
    return LogLine(level=level, message=text, trace_id=trace and trace[1], span_id=span and span[1])


def _json_line(text: str) -> LogLine | None:
    """Take a JSON object apart, as loggers of Go, Node and Rust write it; None when it is none or has no message."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    inner = value.get("fields")
    message = _first(value, _MESSAGE_KEYS) or (_first(inner, _MESSAGE_KEYS) if isinstance(inner, dict) else None)
    if message is None:
        return None
    level = next((value[key] for key in _LEVEL_KEYS if key in value), None)
    known = _PINO.get(level) if isinstance(level, int) else _LEVELS.get(level) if isinstance(level, str) else None
    trace, span = _first(value, _TRACE_KEYS), _first(value, _SPAN_KEYS)
    return LogLine(
        level=known,
        message=message,
        trace_id=trace if trace and _HEX_TRACE.fullmatch(trace) else None,
        span_id=span if span and _HEX_SPAN.fullmatch(span) else None,
    )


def _first(value: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((value[key] for key in keys if isinstance(value.get(key), str)), None)
