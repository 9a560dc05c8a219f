"""Recognise a file by its content and read it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import IO

import pyarrow as pa

from faultset.core.errors import DataError
from faultset.core.printable import brief, first_line, printable
from faultset.datasets.imports.telemetry.content import Content, DamagedError
from faultset.datasets.imports.telemetry.json_units import json_units
from faultset.datasets.imports.telemetry.mapping import MODIFIED, FileRule
from faultset.datasets.imports.telemetry.readers.context import ReadingContext
from faultset.datasets.imports.telemetry.readers.logs import CRI, LogText, is_log_text, stem_of
from faultset.datasets.imports.telemetry.readers.otlp import decode_requests, read_resource
from faultset.datasets.imports.telemetry.readers.prometheus import (
    ExpositionText,
    decode_remote_write,
    is_exposition,
    read_remote_write,
)
from faultset.datasets.imports.telemetry.readers.records import RecordReader
from faultset.datasets.imports.telemetry.readers.tables import is_table, read_csv, read_parquet
from faultset.datasets.imports.telemetry.times import parse_time
from faultset.datasets.telemetry_formats.log_lines import strip_escapes

_LARGEST_MESSAGE = 512 << 20
"""Maximum bytes of a protobuf message, which must fit in memory; exporters write a few megabytes."""
_REFUSED_TEXT = (
    (r"NAME(SPACE)?\s+.*CPU\(cores\)", "is output of kubectl top, which has no times; record metrics over time"),
    (r"LAST SEEN\s+TYPE\s+REASON", 'is a table with relative times; save "kubectl get events -o json"'),
    (r"NAME(SPACE)?\s+(NAME\s+)?READY\s+", 'is a table of kubectl; save "kubectl get -o json"'),
    (r"Name:\s+\S+\n(Namespace|Labels|Priority|Roles):", 'is output of kubectl describe; save "kubectl get -o json"'),
    (r"(apiVersion|kind): \S+\n", 'is a YAML manifest; save "kubectl get -o json"'),
    (r"[\w.]+:[+-]?[\d.]+\|(c|g|ms|s|h|d)\b", "is StatsD text, which has no times; record what its server stores"),
    (r"(?i)\s*<(\?xml|!DOCTYPE|html)", "is XML or HTML; export the data as JSON or CSV"),
    (r"#!|import |def |package |#include", "is a program; give the telemetry that it writes"),
)
"""Beginnings of texts that hold no telemetry, and what to do instead."""


def read_file(
    content: Content, context: ReadingContext, rule: FileRule, advance: Callable[[int], None] | None = None
) -> str:
    """Read a file into staged rows and return the name of its format.

    Raises
    ------
    DataError
        The format is unknown, or the file cannot be read at all.
    """
    if content.head.startswith(b"PAR1"):
        read_parquet(content, context, rule)
        return "Parquet table"
    if not content.encoding:
        return _read_binary(content, context, advance)
    with content.open(advance) as stream:
        header = _skip_recorder_header(content, stream)
        if header is not None:
            content = header
        first = content.head.lstrip()[:1]
        if first in (b"{", b"[") and not rule.pattern:
            read = _read_json(content, stream, context)
        else:
            read = _read_text(content, stream, context, rule)
    return read


def _read_json(content: Content, stream: IO[bytes], context: ReadingContext) -> str:
    reader = RecordReader(context, stem_of(content.path))
    broken: dict[str, int] = {}
    for unit in json_units(content, stream, broken):
        reader.read(unit)
    reader.finish()
    for reason, count in broken.items():
        context.rows.drop(reason, count)
    names = sorted((name for name in reader.formats if name not in _WRAPPERS), key=lambda name: -reader.formats[name])
    return " and ".join(names[:2]) or next(iter(reader.formats), "JSON")


_WRAPPERS = frozenset(
    {"API response", "documents", "Kubernetes watch", "Kubernetes list", "bulk requests", "Fluent Bit records"}
)


def _read_text(content: Content, stream: IO[bytes], context: ReadingContext, rule: FileRule) -> str:
    text = strip_escapes(content.head.decode("utf-8", "replace"))
    lines = text.splitlines() if content.is_whole else text.splitlines()[:-1] or [text]
    filled = [line for line in lines if line.strip()][:200]
    default_ns = _default_time_ns(content.path, rule)
    if rule.pattern:
        reader = LogText(context, re.compile(rule.pattern))
        _read_lines(content, stream, context, reader.read)
        reader.finish()
        return "text logs"
    for shape, reason in _REFUSED_TEXT:
        if re.match(shape, "\n".join(filled[:3]) + "\n"):
            raise DataError(f"{content.name} {reason}, or leave the file out")
    if is_exposition(filled):
        _read_lines(content, stream, context, ExpositionText(context, default_ns).read)
        return "OpenMetrics" if any(line.startswith("# EOF") for line in lines[-3:]) else "Prometheus text"
    if rule.signal in (None, "logs") and (CRI.match(filled[0]) or (is_log_text(filled) and not is_table(filled))):
        reader = LogText(context)
        _read_lines(content, stream, context, reader.read)
        reader.finish()
        return "container logs" if CRI.match(filled[0]) else "text logs"
    if is_table(filled) or (rule.columns and rule.signal != "logs"):
        try:
            read_csv(content, stream, context, rule)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            reason = first_line(error)
            raise DataError(f"{content.name} is not valid CSV ({reason}); correct it or leave it out") from None
        return "CSV table"
    json_lines = sum(line.lstrip().startswith("{") for line in filled)
    if json_lines:
        _read_mixed(content, stream, context)
        return "JSON logs"
    raise DataError(
        f"{content.name} is text without recognisable times or columns (first line: "
        f'"{brief(printable(filled[0]), 50)}"); if it is a log, give its pattern in the mapping file'
    )


def _default_time_ns(path: Path, rule: FileRule) -> int | None:
    return path.stat().st_mtime_ns if rule.time == MODIFIED else parse_time(rule.time) if rule.time else None


def _read_lines(content: Content, stream: IO[bytes], context: ReadingContext, read: Callable[[str], None]) -> None:
    """Pass all lines to a reader, without colours; lines with invalid UTF-8 are repaired and counted."""
    lines = content.lines(stream)
    with closing(lines):  # type: ignore[type-var]
        while True:
            try:
                line = next(lines, b"\0end")
            except DamagedError as error:
                context.rows.drop(str(error))
                return
            if line == b"\0end":
                return
            if line is None:
                context.rows.drop("is a line of more than 64 MB")
                continue
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError:
                text = line.decode("utf-8", "replace")
                context.rows.note("the line holds bytes that are not UTF-8, which became U+FFFD")
            read(strip_escapes(text))


def _read_mixed(content: Content, stream: IO[bytes], context: ReadingContext) -> None:
    """Read a mix of JSON records and text lines without times."""
    import json

    reader = RecordReader(context, stem_of(content.path))

    def read(line: str) -> None:
        try:
            unit = json.loads(line) if line.lstrip().startswith("{") else None
        except (ValueError, RecursionError):
            unit = None
        if isinstance(unit, dict):
            reader.read(unit)
        elif line.strip() and context.last_log_ns is not None:
            context.rows.note("the line has no time and gets the time of the previous record")
            context.add_log(context.origin, context.last_log_ns, line)
        elif line.strip():
            context.rows.drop("has no time")

    _read_lines(content, stream, context, read)
    reader.finish()


def _read_binary(content: Content, context: ReadingContext, advance: Callable[[int], None] | None) -> str:
    if content.size > _LARGEST_MESSAGE:
        raise DataError(f"{content.name} is binary and larger than {_LARGEST_MESSAGE >> 20} MB; export it in pieces")
    with content.open(advance) as stream:
        body = stream.read(_LARGEST_MESSAGE)
    request = decode_remote_write(body)
    if request is not None:
        read_remote_write(request, context)
        return "Prometheus remote write"
    resources = decode_requests(body)
    if resources is not None:
        for resource in resources:
            read_resource(resource, context)
        return "OTLP protobuf"
    raise DataError(f"{content.name} is binary data of an unknown format; export it as OTLP, JSON, CSV or Parquet")


_RECORDER_KEYS = ("toolset_name", "schema_version")


def _skip_recorder_header(content: Content, stream: IO[bytes]) -> Content | None:
    """Skip the header that HolmesGPT's recorder writes before the output of a tool.

    Return the content with the head of the output; None if there is no header.
    """
    import dataclasses
    import json

    head, skipped = content.head, 0
    while skipped < 3:
        line, newline, rest = head.partition(b"\n")
        try:
            record = json.loads(line) if line.startswith(b"{") and newline else None
        except ValueError:
            record = None
        is_header = isinstance(record, dict) and any(key in record for key in _RECORDER_KEYS)
        if not is_header and not (skipped and line.strip() == b"stdout:"):
            break
        stream.readline()
        head, skipped = rest, skipped + 1
    if not skipped:
        return None
    if not head.strip() and content.is_whole:
        raise DataError(f"{content.name} is the record of a tool without output; leave it out")
    return dataclasses.replace(content, head=head)
