"""Sources of logs, events and object states, and the parser of log lines."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from faultset.collector.platforms.objects import ChangeLog, EventRecord, parse_rfc3339_ns
from faultset.core.json_text import replace_surrogates
from faultset.datasets.format.schemas import TABLES

_STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)"
_ZEROLOG = re.compile(rf"{_STAMP} (TRC|DBG|INF|WRN|ERR|FTL|PNC) ")
_BRACKETS = re.compile(rf"{_STAMP} \[(TRACE|DEBUG|INFO|WARN|ERROR)\]\s+")
_BOOST = re.compile(r"\[\d{4}-\w{3}-\d\d \d\d:\d\d:\d\d\.\d+\] <(trace|debug|info|warning|error|fatal)>: ")
_NGINX = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[(debug|info|notice|warn|error|crit|alert|emerg)\] ")
_THRIFT = re.compile(r"(Thrift): \w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4} ")
"""Messages of the Thrift library, which logs only failures and no level."""
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
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
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
    _SPRING,
)
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


def parse_record(text: str) -> LogLine:
    """Parse a record of one or more lines; format, level and ids come from the first line."""
    first, _, rest = text.partition("\n")
    line = parse_line(first)
    return replace(line, message=f"{line.message}\n{_COLOURS.sub('', rest)}") if rest else line


def parse_line(text: str) -> LogLine:
    """Parse a line; in an unknown format the whole line is the message, without a level."""
    if "\x1b" in text:
        text = _COLOURS.sub("", text)
    if text.startswith("{") and (line := _parse_json_line(text)) is not None:
        return line
    level = None
    for shape in _SHAPES:
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
    """Parse a JSON line of a Go, Node, Rust or OpenTelemetry logger; return None without a message."""
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
    if isinstance(level, str):
        return _LEVELS.get(level.lower())
    if isinstance(level, int):
        return _PINO.get(level)
    number = next((value[key] for key in _NUMBER_KEYS if isinstance(value.get(key), int)), 0)
    return _OTEL_LEVELS[(number - 1) // 4] if 1 <= number <= 4 * len(_OTEL_LEVELS) else None


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
"""Beginnings of stack trace lines; the last is a Java exception below the message."""
_TRACEBACK = "Traceback (most recent call last)"
_WITHIN = ("During handling of the above exception", "The above exception was the direct cause")
"""Lines between two Python tracebacks."""
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:: .*|:)?$")
"""The last line of a Python traceback."""
_PAUSE_NS = 1_000_000_000
_MOST_LINES = 1_000


@dataclass(kw_only=True)
class _Record:
    begin_ns: int
    latest_ns: int
    lines: list[str] = field(default_factory=list)
    in_traceback: bool = False
    """Whether a Python traceback has started and its exception line is still missing."""

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip("\n") if len(self.lines) > 1 else self.lines[0]

    def append(self, time_ns: int, line: str) -> bool:
        """Append a line if it continues this record; return whether it does."""
        if time_ns - self.latest_ns > _PAUSE_NS or len(self.lines) >= _MOST_LINES:
            return False
        ends = self.in_traceback and not line[:1].isspace() and _EXCEPTION.match(line) is not None
        continues = ends or _is_continuation(line) or (len(self.lines) > 1 and line.startswith(_WITHIN))
        if continues or (len(self.lines) > 1 and not line.strip()):
            self.lines.append(line)
            self.latest_ns = time_ns
            self.in_traceback = line.startswith(_TRACEBACK) or (self.in_traceback and not ends)
            return True
        return False


def read_records(entries: Iterable[str], end_ns: int) -> Iterator[tuple[int, str]]:
    """Yield the time and text of every record printed before `end_ns`.

    Parameters
    ----------
    entries
        Lines in the format of container runtimes: time, stream, `P` (partial line) or `F` (full line), and text. The
        streams are read separately.
    """
    partials: dict[str, str] = {}
    records: dict[str, _Record] = {}
    for entry in entries:
        stamp, _, rest = entry.rstrip("\n").partition(" ")
        stream, _, rest = rest.partition(" ")
        flag, _, text = rest.partition(" ")
        text = partials.pop(stream, "") + text
        if flag == "P":
            partials[stream] = text
            continue
        time_ns = parse_rfc3339_ns(stamp)
        if time_ns >= end_ns:
            break
        record = records.get(stream)
        if record is not None:
            if record.append(time_ns, text):
                continue
            yield record.begin_ns, record.text
        records[stream] = _Record(
            begin_ns=time_ns, latest_ns=time_ns, lines=[text], in_traceback=text.startswith(_TRACEBACK)
        )
    for record in records.values():
        yield record.begin_ns, record.text


def _is_continuation(line: str) -> bool:
    """Return whether a line belongs to a stack trace and has no log format itself."""
    if _CONTINUES.match(line) is None:
        return False
    text = line.lstrip()
    return not text.startswith("{") and parse_line(text).level is None


OBJECT_INTERVAL_S = 10.0
_BATCH = 50_000


def _build_batches(table: str, rows: Iterator[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    schema = pa.schema([column for column in TABLES[table] if column.name != "episode"])
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    count = 0
    for row in rows:
        for name, column in columns.items():
            column.append(row[name])
        count += 1
        if count % _BATCH == 0:
            yield _build_batch(schema, columns)
            columns = {name: [] for name in schema.names}
    if count == 0 or count % _BATCH:
        yield _build_batch(schema, columns)


def _build_batch(schema: pa.Schema, columns: dict[str, list[Any]]) -> pa.RecordBatch:
    arrays = []
    for column in schema:
        values = [replace_surrogates(value) if isinstance(value, str) else value for value in columns[column.name]]
        if pa.types.is_dictionary(column.type):
            arrays.append(pa.array(values, column.type.value_type).dictionary_encode().cast(column.type))
        else:
            arrays.append(pa.array(values, column.type))
    return pa.record_batch(arrays, schema=schema)


class HasEvents(Protocol):
    """A recorder of events."""

    events: list[EventRecord]


class EventSource:
    """The source of events."""

    table = "events"
    interval_s: float | None = None

    def __init__(self, log: HasEvents):
        self._log = log

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the events in `[start_ns, end_ns)`."""
        rows = (
            {
                "time": event.time_ns,
                "type": event.type,
                "reason": event.reason,
                "kind": event.kind,
                "name": event.name,
                "service": event.service,
                "message": event.message,
                "count": event.count,
            }
            for event in list(self._log.events)
            if start_ns <= event.time_ns < end_ns
        )
        return _build_batches("events", rows)

    def discard(self, before_ns: int) -> None:
        """Forget the events before a time."""
        # another thread appends, so only the beginning is changed
        del self._log.events[: sum(1 for _ in takewhile(lambda event: event.time_ns < before_ns, self._log.events))]

    def close(self) -> None:
        """Do nothing; no file is open."""


class ObjectSource:
    """The source of object states: on every change, and every ten seconds from the start of the window."""

    table = "objects"
    interval_s: float | None = OBJECT_INTERVAL_S

    def __init__(self, log: ChangeLog):
        self._log = log

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the states in `[start_ns, end_ns)`."""
        observations = self._log.observe(start_ns, end_ns, int(OBJECT_INTERVAL_S * 1e9))
        rows = (
            {
                "time": observation.time_ns,
                "kind": observation.kind,
                "name": observation.name,
                "service": observation.service,
                "state": observation.state,
                "data": observation.data,
            }
            for observation in observations
        )
        return _build_batches("objects", rows)

    def discard(self, before_ns: int) -> None:
        """Forget the states before a time."""
        self._log.discard(before_ns)

    def close(self) -> None:
        """Do nothing; no file is open."""


class LogSource:
    """The source of log records, including those of removed containers and pods.

    Parameters
    ----------
    folder
        Contains `<pod>/<container>/<restart>.log` in the format of container runtimes.
    service_of_pod
        Returns the workload that owns a pod, by its name.
    """

    table = "logs"
    interval_s: float | None = None

    def __init__(self, folder: Path, service_of_pod: Callable[[str], str | None]):
        self._folder = folder
        self._service_of_pod = service_of_pod
        self._offsets: dict[Path, int] = {}

    def snapshot(self, start_ns: int, end_ns: int) -> Iterator[pa.RecordBatch]:
        """Yield the records that start in `[start_ns, end_ns)`, container by container."""
        return _build_batches("logs", self._rows(start_ns, end_ns))

    def discard(self, before_ns: int) -> None:
        """Skip the lines before a time in later snapshots."""
        present = [*self._folder.glob("*/*/*.log")]
        self._offsets = {path: _offset_of(path, before_ns, self._offsets.get(path, 0)) for path in present}

    def close(self) -> None:
        """Do nothing; no file is open."""

    def _rows(self, start_ns: int, end_ns: int) -> Iterator[dict[str, Any]]:
        for path in sorted(self._folder.glob("*/*/*.log"), key=_sort_key):
            if path.stat().st_mtime_ns < start_ns:
                continue
            pod, container = path.parent.parent.name, path.parent.name
            service = self._service_of_pod(pod)
            with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
                file.seek(self._offsets.get(path, 0))
                for time_ns, text in read_records(file, end_ns):
                    if time_ns >= start_ns:
                        line = parse_record(text)
                        yield {
                            "time": time_ns,
                            "service": service,
                            "pod": pod,
                            "container": container,
                            "level": line.level,
                            "message": line.message,
                            "trace_id": line.trace_id,
                            "span_id": line.span_id,
                        }


def _sort_key(path: Path) -> tuple[str, int]:
    return str(path.parent), int(re.sub(r"\D", "", path.stem) or 0)


def _offset_of(path: Path, time_ns: int, start: int) -> int:
    """Return the position of the first line from a time on, not before `start`."""
    with path.open("rb") as file:
        file.seek(start)
        for line in file:
            stamp = line.partition(b" ")[0].decode(errors="replace")
            if not line.endswith(b"\n") or parse_rfc3339_ns(stamp) >= time_ns:
                break
            start += len(line)
    return start
