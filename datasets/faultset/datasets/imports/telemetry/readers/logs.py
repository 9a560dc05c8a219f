"""Read logs: JSON lines, Loki, Docker, container runtimes, Elastic documents, and plain text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from faultset.core.files import canonical_json
from faultset.datasets.imports.telemetry.identity import Origin, read_origin, short_name, split_labels
from faultset.datasets.imports.telemetry.readers.otlp import canonical_json_or_text
from faultset.datasets.imports.telemetry.rows import ReadingContext
from faultset.datasets.imports.telemetry.times import find_time
from faultset.datasets.telemetry_formats.log_lines import RecordJoiner, level_of_number, read_level
from faultset.datasets.telemetry_formats.otlp_json import read_id, read_int

_TIMES = (
    "@timestamp", "timestamp", "time", "ts", "t", "datetime", "eventTime", "timeUnixNano", "observedTimestamp",
    "observedTime", "asctime", "date", "_time",
)  # fmt: skip
_MESSAGES = ("message", "msg", "body", "log", "text", "event.original", "MESSAGE")
_LEVELS = ("severityText", "severity_text", "level", "severity", "log.level", "levelname", "lvl", "loglevel")
_NUMBERS = ("severityNumber", "severity_number")
_TRACES = ("traceId", "trace_id", "trace.id", "traceID", "otelTraceID", "log.attributes.otelTraceID")
_SPANS = ("spanId", "span_id", "span.id", "spanID", "otelSpanID", "log.attributes.otelSpanID")
CRI = re.compile(r"\d{4}-\d\d-\d\dT\S+ (?:stdout|stderr) [FP](?: |$)")
_PREFIX = re.compile(r"\[pod/([^/\]]+)/([^\]]+)\] ")
"""The prefix that `kubectl logs --prefix` adds to a line."""


def flatten(record: Mapping[str, Any], max_values: int = 400) -> dict[str, Any]:
    """Return nested mappings as one mapping with dotted names; stop once it has `max_values` values."""
    flat: dict[str, Any] = {}
    pending: list[tuple[str, Mapping[str, Any]]] = [("", record)]
    while pending and len(flat) < max_values:
        prefix, level = pending.pop()
        for name, value in level.items():
            key = f"{prefix}{name}".replace("@", ".") if prefix else str(name)
            if isinstance(value, Mapping):
                pending.append((f"{key}.", value))
            else:
                flat.setdefault(key, value)
                for start in ("resource.attributes.", "log.attributes.", "resource."):
                    if key.startswith(start):
                        flat.setdefault(key.removeprefix(start).replace("@", "."), value)
    return flat


def is_log_record(flat: Mapping[str, Any]) -> bool:
    """Return whether a flat record has a message."""
    return any(isinstance(flat.get(name), str) for name in _MESSAGES) or "body" in flat


def read_json_log(flat: Mapping[str, Any], context: ReadingContext, default_time_ns: int | None = None) -> None:
    """Read a flat JSON record of any logger or index."""
    time_ns = next(
        (match for name in _TIMES if (match := context.parse_time(flat.get(name))) and match > 0), default_time_ns
    )
    message = next((flat[name] for name in _MESSAGES if isinstance(flat.get(name), str)), flat.get("body"))
    level = next((match for name in _LEVELS if (match := read_level(flat.get(name)))), None)
    level = level or next((match for name in _NUMBERS if (match := level_of_number(read_int(flat.get(name))))), None)
    context.add_log(
        read_origin(flat, context.origin),
        time_ns,
        message if isinstance(message, str) else canonical_json_or_text(message),
        level=level,
        trace_id=_find_id(flat, _TRACES, 16),
        span_id=_find_id(flat, _SPANS, 8),
    )


def _find_id(flat: Mapping[str, Any], names: Iterable[str], width: int) -> str | None:
    return next((match for name in names if (match := read_id(flat.get(name), width))), None)


def read_loki_stream(item: Mapping[str, Any], context: ReadingContext) -> None:
    """Read a stream of a Loki response or push request."""
    labels = item["stream"] if isinstance(item.get("stream"), Mapping) else {}
    origin, rest = split_labels(labels, context.origin)
    level = read_level(rest.get("detected_level") or rest.get("level"))
    entries = item.get("values") or item.get("entries") or ()
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping):
            entry = [entry.get("ts") or entry.get("timestamp"), entry.get("line")]
        if not isinstance(entry, list) or len(entry) < 2 or not isinstance(entry[1], str):
            context.rows.drop("is not a pair of time and line")
            continue
        extra = entry[2] if len(entry) > 2 and isinstance(entry[2], Mapping) else {}
        context.add_log(
            read_origin(extra, origin),
            context.parse_time(entry[0]),
            entry[1],
            level=level,
            trace_id=_find_id(extra, _TRACES, 16),
            span_id=_find_id(extra, _SPANS, 8),
        )


class DockerLog:
    """Reads records of Docker's JSON log driver, which splits long lines, and Fluent Bit's copies of such records."""

    def __init__(self, context: ReadingContext) -> None:
        self._context = context
        self._joiner = RecordJoiner()
        self._origins: dict[str, Origin] = {}

    def read(self, record: Mapping[str, Any]) -> None:
        """Read a record."""
        time_ns = self._context.parse_time(record.get("time") or record.get("@timestamp"))
        text = str(record["log"])
        if time_ns is None:
            self._context.rows.drop("has no time")
            return
        flat = flatten(record) if len(record) > 3 else {}
        origin = read_origin(flat, self._context.origin) if flat else self._context.origin
        stream = f"{record.get('stream') or ''} {canonical_json(origin)}"
        self._origins[stream] = origin
        is_partial = not text.endswith("\n") and "time" in record and len(text) >= 16_000
        for start_ns, whole in self._joiner.add(time_ns, text.rstrip("\n"), stream, is_partial=is_partial):
            self._context.add_log(origin, start_ns, whole)

    def finish(self) -> None:
        """Read the pending records."""
        for stream, (start_ns, whole) in zip(self._origins, self._joiner.finish(), strict=False):
            self._context.add_log(self._origins[stream], start_ns, whole)


class LogText:
    """Reads log lines in the format of container runtimes, with a leading time, or with a pattern.

    The pattern has the groups `time` and `message`, and optionally `level`, `service`, `pod`, `trace_id`.
    """

    def __init__(self, context: ReadingContext, pattern: re.Pattern[str] | None = None) -> None:
        self._context, self._pattern = context, pattern
        self._joiners: dict[Origin, RecordJoiner] = {}
        self._open: tuple[int, Origin, list[str]] | None = None

    def read(self, line: str) -> None:
        """Read a line; it must not include the newline."""
        origin = self._context.origin
        prefix = _PREFIX.match(line)
        if prefix:
            origin = origin._replace(pod=short_name(prefix[1]), container=short_name(prefix[2]))
            line = line[prefix.end() :]
        if self._pattern is not None:
            self._read_matched(line, self._pattern)
        elif CRI.match(line):
            stamp, stream, flag, *rest = line.split(" ", 3)
            time_ns = self._context.parse_time(stamp)
            if time_ns is None:
                self._context.rows.drop("has no time")
                return
            joiner = self._joiners.setdefault(origin, RecordJoiner())
            for start_ns, text in joiner.add(time_ns, rest[0] if rest else "", stream, is_partial=flag == "P"):
                self._context.add_log(origin, start_ns, text)
        else:
            self._read_timed(line, origin)

    def _read_timed(self, line: str, origin: Origin) -> None:
        """Read a line with a leading time; a line without a time continues the previous record."""
        start = find_time(line, self._context.zone)
        if start is not None:
            self._close()
            self._open = (start[0], origin, [line[start[1] :]])
        elif self._open is None:
            self._context.rows.drop("has no time" if line.strip() else "is an empty line")
        elif len(self._open[2]) < 1_000:
            self._open[2].append(line)
        else:
            self._context.rows.drop("continues a record that already has 1,000 lines")

    def _read_matched(self, line: str, pattern: re.Pattern[str]) -> None:
        match = pattern.search(line)
        if match is None:
            self._context.rows.drop("does not match the pattern of the mapping file")
            return
        facts = match.groupdict()
        origin = self._context.origin._replace(
            **{name: short_name(facts[name]) for name in Origin._fields if facts.get(name)}
        )
        self._context.add_log(
            origin,
            self._context.parse_time(facts.get("time")),
            facts.get("message") or line,
            level=read_level(facts.get("level")),
            trace_id=read_id(facts.get("trace_id"), 16) or None,
        )

    def _close(self) -> None:
        if self._open is not None:
            time_ns, origin, lines = self._open
            self._context.add_log(origin, time_ns, "\n".join(lines).rstrip("\n"))
            self._open = None

    def finish(self) -> None:
        """Read the pending records."""
        self._close()
        for origin, joiner in self._joiners.items():
            for start_ns, text in joiner.finish():
                self._context.add_log(origin, start_ns, text)


def is_log_text(lines: Sequence[str]) -> bool:
    """Return whether at least a fifth of the lines begin with a time or contain the time of an access log."""
    filled = [_PREFIX.sub("", line) for line in lines if line.strip()]
    return bool(filled) and 5 * sum(find_time(line) is not None for line in filled) >= len(filled)


def stem_of(path: Path) -> str:
    """Return the name of a file without its suffixes."""
    return path.name.partition(".")[0] or path.name
