"""Log lines as the programs of an application print them: their own stamp and level, and trace ids."""

from __future__ import annotations

import re
from dataclasses import dataclass

_STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)"
_ZEROLOG = re.compile(rf"{_STAMP} (TRC|DBG|INF|WRN|ERR|FTL|PNC) ")
_BRACKETS = re.compile(rf"{_STAMP} \[(TRACE|DEBUG|INFO|WARN|ERROR)\]\s+")
_BOOST = re.compile(r"\[\d{4}-\w{3}-\d\d \d\d:\d\d:\d\d\.\d+\] <(trace|debug|info|warning|error|fatal)>: ")
_NGINX = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[(debug|info|notice|warn|error|crit|alert|emerg)\] ")
_THRIFT = re.compile(r"(Thrift): \w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4} ")
"""What the library says by itself: failures only, without a level."""
_REDIS = re.compile(r"\d+:[XCSM] \d\d \w{3} \d{4} \d\d:\d\d:\d\d\.\d+ ([.*#-]) ")
_TRACE = re.compile(r"\btrace_id=([0-9a-f]{32})\b")
_SPAN = re.compile(r"\bspan_id=([0-9a-f]{16})\b")

_LEVELS = {
    "TRC": "trace", "DBG": "debug", "INF": "info", "WRN": "warning", "ERR": "error", "FTL": "fatal", "PNC": "fatal",
    "TRACE": "trace", "DEBUG": "debug", "INFO": "info", "WARN": "warning", "ERROR": "error",
    ".": "trace", "-": "debug", "*": "info", "#": "warning", "Thrift": "error",
    "trace": "trace", "debug": "debug", "info": "info", "warning": "warning", "error": "error", "fatal": "fatal",
    "notice": "info", "warn": "warning", "crit": "fatal", "alert": "fatal", "emerg": "fatal",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """One line, taken apart."""

    level: str | None
    message: str
    trace_id: str | None = None
    span_id: str | None = None


def parse_line(text: str) -> LogLine:
    """Take a line apart; one in no known shape is all message and has no level."""
    level = None
    for shape in (_ZEROLOG, _BRACKETS, _BOOST, _NGINX, _THRIFT, _REDIS):
        match = shape.match(text)
        if match:
            level, text = _LEVELS[match[1]], text[match.end() :]
            break
    trace, span = _TRACE.search(text), _SPAN.search(text)
    return LogLine(level=level, message=text, trace_id=trace and trace[1], span_id=span and span[1])
