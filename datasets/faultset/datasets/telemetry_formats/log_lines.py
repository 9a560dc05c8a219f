"""Parse log lines of common formats, and join lines that belong to one record."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from faultset.datasets.telemetry_formats.kubernetes_objects import parse_rfc3339_ns

_STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)"
_ZEROLOG = re.compile(rf"{_STAMP} (TRC|DBG|INF|WRN|ERR|FTL|PNC) ")
_BRACKETS = re.compile(rf"{_STAMP} \[(TRACE|DEBUG|INFO|WARN|ERROR)\]\s+")
_BOOST = re.compile(r"\[\d{4}-\w{3}-\d\d \d\d:\d\d:\d\d\.\d+\] <(trace|debug|info|warning|error|fatal)>: ")
_NGINX = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[(debug|info|notice|warn|error|crit|alert|emerg)\] ")
_THRIFT = re.compile(r"(Thrift): \w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4} ")
"""The Thrift library, whose messages have no level and are always failures."""
_LOG4J = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARN|ERROR|FATAL) ")
"""Log4j and Python's logging."""
_DOTNET = re.compile(r"(trce|dbug|info|warn|fail|crit): ")
_RUBY = re.compile(r"[DIWEF], \[[^\]]*\]  ?(DEBUG|INFO|WARN|ERROR|FATAL) -- [^:]*: ")
_MONOLOG = re.compile(rf"\[{_STAMP}\] [\w.-]+\.(DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|CRITICAL|FATAL): ")
_ENVOY = re.compile(
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+\]\[\d+\]\[(trace|debug|info|warning|error|critical)\]\[\S+\] "
)
_UNIFIED = re.compile(r"\[\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3} [+-]\d\d:\d\d\] \[(DEBUG|INFO|WARN|ERROR|FATAL)\] ")
"""The unified log format of TiDB."""
_KLOG = re.compile(r"([IWEF])\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ ")
_REDIS = re.compile(r"\d+:[XCSM] \d\d \w{3} \d{4} \d\d:\d\d:\d\d\.\d+ ([.*#-]) ")
_SPRING = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,]\d{3}(?:Z|[+-]\d\d:?\d\d)? +(TRACE|DEBUG|INFO|WARN|ERROR|FATAL) +\d+ --- "
)
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
"""Colours, cursor movements and window titles of terminals."""
_LOGFMT = re.compile(r'[A-Za-z_][\w.-]*=(?:"|\S+ )')
_LOGFMT_LEVEL = re.compile(r'(?:^|(?<= ))(?:level|lvl|severity)="?(\w+)"?(?: |$)')
_LOGFMT_TIME = re.compile(r'^(?:time|ts|timestamp|t)=(?:"[^"]*"|\S+) ')
_ID = r"""[_. -]?id["']?\s*[=:]\s*["']?"""
_TRACE = re.compile(rf"\btrace{_ID}([0-9a-f]{{32}})\b", re.IGNORECASE)
_SPAN = re.compile(rf"\bspan{_ID}([0-9a-f]{{16}})\b", re.IGNORECASE)
_HEX_TRACE, _HEX_SPAN = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9a-f]{16}")

_LEVELS = {
    "trc": "trace", "dbg": "debug", "inf": "info", "wrn": "warning", "err": "error", "ftl": "fatal", "pnc": "fatal",
    "trace": "trace", "debug": "debug", "info": "info", "warn": "warning", "warning": "warning", "error": "error",
    "fatal": "fatal", "panic": "fatal", "dpanic": "fatal", "severe": "error", "information": "info", "verbose": "debug",
    ".": "trace", "-": "debug", "*": "info", "#": "warning", "thrift": "error",
    "trce": "trace", "dbug": "debug", "fail": "error", "i": "info", "w": "warning", "e": "error", "f": "fatal",
    "notice": "info", "crit": "fatal", "critical": "fatal", "alert": "fatal", "emerg": "fatal", "emergency": "fatal",
}  # fmt: skip
"""Levels by the lowercase word in a log line."""
_FORMATS = (
    _ZEROLOG, _BRACKETS, _BOOST, _NGINX, _THRIFT, _LOG4J, _DOTNET, _RUBY, _MONOLOG, _ENVOY, _UNIFIED, _KLOG, _REDIS,
    _SPRING,
)  # fmt: skip
_PINO = {10: "trace", 20: "debug", 30: "info", 40: "warning", 50: "error", 60: "fatal"}
_LEVEL_KEYS = ("severity", "level", "log.level", "severitytext", "severity_text")
_NUMBER_KEYS = ("severitynumber", "severity_number")
_MESSAGE_KEYS = ("message", "msg", "body")
_TRACE_KEYS, _SPAN_KEYS = ("trace_id", "traceid", "trace.id"), ("span_id", "spanid", "span.id")
"""Keys are compared in lower case."""
_OTEL_LEVELS = ("trace", "debug", "info", "warning", "error", "fatal")
"""Each level has four consecutive numbers, starting at 1."""


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """A parsed log line."""

    level: str | None
    message: str
    trace_id: str | None = None
    span_id: str | None = None


def strip_escapes(text: str) -> str:
    """Return text without the escape sequences of terminals.

    >>> strip_escapes("\\x1b[1;31mERROR\\x1b[0m refused")
    'ERROR refused'
    """
    return _ESCAPES.sub("", text) if "\x1b" in text else text


def parse_record(text: str) -> LogLine:
    """Parse a record of one or more lines; format, level and ids come from the first line."""
    first, _, rest = text.partition("\n")
    line = parse_line(first)
    return replace(line, message=f"{line.message}\n{strip_escapes(rest)}") if rest else line


def parse_line(text: str) -> LogLine:
    """Parse a line; in an unknown format the whole line is the message, without a level."""
    text = strip_escapes(text)
    if text.startswith("{") and (line := _parse_json_line(text)) is not None:
        return line
    level = None
    for shape in _FORMATS:
        match = shape.match(text)
        if match:
            level, text = _LEVELS[match[1].lower()], text[match.end() :]
            break
    else:
        if _LOGFMT.match(text) and (match := _LOGFMT_LEVEL.search(text)):
            level = _LEVELS.get(match[1].lower())
            text = _LOGFMT_TIME.sub("", text[: match.start()] + text[match.end() :]).rstrip(" ")
    trace, span = _TRACE.search(text), _SPAN.search(text)
    return LogLine(level=level, message=text, trace_id=trace and trace[1].lower(), span_id=span and span[1].lower())


def _parse_json_line(text: str) -> LogLine | None:
    """Parse a JSON line of a Go, Node, Rust or OpenTelemetry logger; return None if it has no message."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    value = {key.lower(): item for key, item in value.items()}
    inner = value.get("fields")
    message = _find_text(value, _MESSAGE_KEYS) or (
        _find_text(inner, _MESSAGE_KEYS) if isinstance(inner, dict) else None
    )
    if message is None:
        return None
    trace, span = _find_id(value, _TRACE_KEYS, _HEX_TRACE), _find_id(value, _SPAN_KEYS, _HEX_SPAN)
    return LogLine(level=_parse_json_level(value), message=message, trace_id=trace, span_id=span)


def _parse_json_level(value: Mapping[str, Any]) -> str | None:
    level = next((value[key] for key in _LEVEL_KEYS if value.get(key) not in (None, "")), None)
    if level is not None:
        return read_level(level)
    return level_of_number(next((value[key] for key in _NUMBER_KEYS if isinstance(value.get(key), int)), None))


def read_level(value: Any) -> str | None:
    """Return our name for a level, given its name or a number of Node's loggers; None if it is unknown."""
    if isinstance(value, str):
        return _LEVELS.get(value.lower()) or _LEVELS.get(value.lower().rstrip("0123456789"))
    return _PINO.get(value) if isinstance(value, int) else None


def level_of_number(number: int | None) -> str | None:
    """Return the level of OpenTelemetry's severity number; None if the number is invalid."""
    return _OTEL_LEVELS[(number - 1) // 4] if number and 1 <= number <= 4 * len(_OTEL_LEVELS) else None


def _find_id(value: Mapping[str, Any], keys: tuple[str, ...], shape: re.Pattern[str]) -> str | None:
    text = (_find_text(value, keys) or "").lower()
    return text if shape.fullmatch(text) else None


def _find_text(value: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    """Return the first text under one of the keys, plain or in OTLP's `stringValue`."""
    for key in keys:
        item = value.get(key)
        if isinstance(item, dict):
            item = item.get("stringValue")
        if isinstance(item, str):
            return item
    return None


_CONTINUES = re.compile(
    r"\s+\S|at |Caused by: |Suppressed: |Traceback \(most recent call last\)|\.\.\. \d+ more"
    r"|(?:[a-z_]\w*\.)+[A-Z]\w*(?:Exception|Error|Throwable)(?::|$)"
)
"""Beginnings of lines in a stack trace; the last alternative is a Java exception below the message."""
_TRACEBACK = "Traceback (most recent call last)"
_WITHIN = ("During handling of the above exception", "The above exception was the direct cause")
"""Lines between two Python tracebacks."""
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:: .*|:)?$")
"""The last line of a Python traceback."""
_GO_PANIC = re.compile(r"(?:panic|fatal error): ")
_GO_TRACE = re.compile(
    r"\s*$|\s+\S|goroutine \d+ |created by |\[signal |panic: |exit status \d+$|\.\.\.additional frames elided\.\.\."
    r"|[A-Za-z_][\w./*(){}\[\]·-]*\(.*\)$"
)
"""Lines of a Go stack trace; the last alternative is a call, such as `main.(*server).search(0xc0, ...)`."""
_PAUSE_NS = 1_000_000_000
_MAX_LINES = 1_000


@dataclass(kw_only=True)
class _Record:
    start_ns: int
    latest_ns: int
    lines: list[str] = field(default_factory=list)
    in_traceback: bool = False
    """Whether a Python traceback has started and its exception line is still missing."""

    @property
    def is_go_panic(self) -> bool:
        """Whether the record is the panic of a Go program."""
        return _GO_PANIC.match(self.lines[0]) is not None

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip("\n") if len(self.lines) > 1 else self.lines[0]

    def append(self, time_ns: int, line: str) -> bool:
        """Append a line if it continues this record; return whether it does."""
        if time_ns - self.latest_ns > _PAUSE_NS or len(self.lines) >= _MAX_LINES:
            return False
        ends = self.in_traceback and not line[:1].isspace() and _EXCEPTION.match(line) is not None
        continues = ends or _is_continuation(line) or (len(self.lines) > 1 and line.startswith(_WITHIN))
        continues = continues or (self.is_go_panic and _GO_TRACE.match(line) is not None)
        if continues or (len(self.lines) > 1 and not line.strip()):
            self.lines.append(line)
            self.latest_ns = time_ns
            self.in_traceback = line.startswith(_TRACEBACK) or (self.in_traceback and not ends)
            return True
        return False


def read_records(entries: Iterable[str], end_ns: int) -> Iterator[tuple[int, str]]:
    """Yield the time and text of every record printed before `end_ns`.

    Entries have the format of container runtimes: time, stream, `P` (partial line) or `F` (full line), and text. The
    streams are read separately.
    """
    joiner = RecordJoiner()
    for entry in entries:
        stamp, _, rest = entry.rstrip("\n").partition(" ")
        stream, _, rest = rest.partition(" ")
        flag, _, text = rest.partition(" ")
        time_ns = parse_rfc3339_ns(stamp)
        if flag != "P" and time_ns >= end_ns:
            break
        yield from joiner.add(time_ns, text, stream, is_partial=flag == "P")
    yield from joiner.finish()


class RecordJoiner:
    """Joins partial lines and the lines of a stack trace into records, separately for each stream."""

    def __init__(self) -> None:
        self._partials: dict[str, list[str]] = {}
        self._records: dict[str, _Record] = {}

    def add(self, time_ns: int, text: str, stream: str = "", *, is_partial: bool = False) -> Iterator[tuple[int, str]]:
        """Add a line; if it starts a new record, yield the time and text of the previous record."""
        pieces = self._partials.setdefault(stream, [])
        pieces.append(text)
        if is_partial:
            return
        text = "".join(pieces)
        pieces.clear()
        record = self._records.get(stream)
        if record is not None:
            if record.append(time_ns, text):
                return
            yield record.start_ns, record.text
        self._records[stream] = _Record(
            start_ns=time_ns, latest_ns=time_ns, lines=[text], in_traceback=text.startswith(_TRACEBACK)
        )

    def finish(self) -> Iterator[tuple[int, str]]:
        """Yield the last record of each stream; partial lines without an end are dropped."""
        for record in self._records.values():
            yield record.start_ns, record.text


def _is_continuation(line: str) -> bool:
    """Return whether a line belongs to a stack trace and has no log format itself."""
    if _CONTINUES.match(line) is None:
        return False
    text = line.lstrip()
    return not text.startswith("{") and parse_line(text).level is None
