"""Recognise files by their content and read them into a staging folder; an interrupted import resumes."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from faultset.core.errors import DataError, DiskFullError
from faultset.core.files import replace_text
from faultset.core.printable import brief, first_line, printable
from faultset.datasets.format.storage import translate_disk_full
from faultset.datasets.imports.archives import is_archive, unpack
from faultset.datasets.imports.telemetry.content import (
    TOO_LONG,
    Content,
    DamagedError,
    json_units,
    open_content,
    walk_files,
)
from faultset.datasets.imports.telemetry.identity import origin_of_path
from faultset.datasets.imports.telemetry.mapping import MODIFIED, FileRule, TelemetryMapping, zone_of
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
from faultset.datasets.imports.telemetry.rows import ReadingContext, Redactor, StagedRows
from faultset.datasets.imports.telemetry.times import parse_time
from faultset.datasets.telemetry_formats.log_lines import strip_escapes

_MAX_MESSAGE_BYTES = 512 << 20
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


def read_file(content: Content, context: ReadingContext, rule: FileRule, advance: Callable[[int], None]) -> str:
    """Read a file into staged rows and return the name of its format; raise DataError if the file is refused."""
    if content.head.startswith(b"PAR1"):
        read_parquet(content, context, rule)
        return "Parquet table"
    if not content.encoding:
        return _read_binary(content, context, advance)
    with content.open(advance) as stream:
        content = _skip_recorder_header(content, stream)
        if content.head.lstrip()[:1] in (b"{", b"[") and not rule.pattern:
            return _read_json(content, stream, context)
        return _read_text(content, stream, context, rule)


def _read_json(content: Content, stream: IO[bytes], context: ReadingContext) -> str:
    reader = RecordReader(context, stem_of(content.path))
    broken: Counter[str] = Counter()
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
    if rule.pattern:
        _read_lines(content, stream, context, LogText(context, re.compile(rule.pattern)))
        return "text logs"
    for shape, reason in _REFUSED_TEXT:
        if re.match(shape, "\n".join(filled[:3]) + "\n"):
            raise DataError(f"{content.name} {reason}, or leave the file out")
    if is_exposition(filled):
        default_ns = content.path.stat().st_mtime_ns if rule.time == MODIFIED else parse_time(rule.time or None)
        _read_lines(content, stream, context, ExpositionText(context, default_ns))
        return "OpenMetrics" if any(line.startswith("# EOF") for line in lines[-3:]) else "Prometheus text"
    if rule.signal in (None, "logs") and (CRI.match(filled[0]) or (is_log_text(filled) and not is_table(filled))):
        _read_lines(content, stream, context, LogText(context))
        return "container logs" if CRI.match(filled[0]) else "text logs"
    if is_table(filled) or (rule.columns and rule.signal != "logs"):
        try:
            read_csv(content, stream, context, rule)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            reason = first_line(error)
            raise DataError(f"{content.name} is not valid CSV ({reason}); correct it or leave it out") from None
        return "CSV table"
    if any(line.lstrip().startswith("{") for line in filled):
        _read_lines(content, stream, context, _MixedLog(context, stem_of(content.path)))
        return "JSON logs"
    raise DataError(
        f"{content.name} is text without recognisable times or columns (first line: "
        f'"{brief(printable(filled[0]), 50)}"); if it is a log, give its pattern in the mapping file'
    )


def _read_lines(
    content: Content, stream: IO[bytes], context: ReadingContext, reader: LogText | ExpositionText | _MixedLog
) -> None:
    """Pass all lines to a reader, without colour codes; lines with invalid UTF-8 are repaired and counted."""
    lines = content.lines(stream)
    with closing(lines):  # type: ignore[type-var]
        try:
            for line in lines:
                if line is None:
                    context.rows.drop(TOO_LONG)
                    continue
                try:
                    text = line.decode("utf-8")
                except UnicodeDecodeError:
                    text = line.decode("utf-8", "replace")
                    context.rows.note("the line holds bytes that are not UTF-8, which became U+FFFD")
                reader.read(strip_escapes(text))
        except DamagedError as error:
            context.rows.drop(str(error))
    reader.finish()


class _MixedLog:
    """Reads a mix of JSON records and text lines without times."""

    def __init__(self, context: ReadingContext, file_stem: str) -> None:
        self._context, self._records = context, RecordReader(context, file_stem)

    def read(self, line: str) -> None:
        try:
            unit = json.loads(line) if line.lstrip().startswith("{") else None
        except (ValueError, RecursionError):
            unit = None
        if isinstance(unit, dict):
            self._records.read(unit)
        elif line.strip() and self._context.last_log_ns is not None:
            self._context.rows.note("the line has no time and gets the time of the previous record")
            self._context.add_log(self._context.origin, self._context.last_log_ns, line)
        elif line.strip():
            self._context.rows.drop("has no time")

    def finish(self) -> None:
        self._records.finish()


def _read_binary(content: Content, context: ReadingContext, advance: Callable[[int], None]) -> str:
    if content.size > _MAX_MESSAGE_BYTES:
        raise DataError(f"{content.name} is binary and larger than {_MAX_MESSAGE_BYTES >> 20} MB; export it in pieces")
    with content.open(advance) as stream:
        body = stream.read(_MAX_MESSAGE_BYTES)
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


def _skip_recorder_header(content: Content, stream: IO[bytes]) -> Content:
    """Skip the header that HolmesGPT's recorder writes before the output of a tool, if there is one."""
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
    if skipped and not head.strip() and content.is_whole:
        raise DataError(f"{content.name} is the record of a tool without output; leave it out")
    return replace(content, head=head)


_log = logging.getLogger(__name__)
FACTS = "facts.json"
_READERS_VERSION = 1
"""Incremented when readers change, so that files staged by an earlier release are read again."""
_DATABASE_REFUSAL = (
    "{folder} is a data folder of Prometheus, which only Prometheus can read; use "
    '"faultset record --prometheus URL", or write it as text with "promtool tsdb dump-openmetrics {folder}"'
)


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """Format, rows and dropped records of one file."""

    name: str
    """Path below the folder that the user gave."""
    format: str
    """Name of the format; empty if the file was refused."""
    refusal: str = ""
    """Why the file was refused."""
    copy_of: str = ""
    """Name of an earlier file, if the file was refused because it has the same content."""
    rows: Mapping[str, int] = field(default_factory=dict[str, int])
    """Table -> number of rows."""
    dropped: Mapping[str, int] = field(default_factory=dict[str, int])
    """Reason -> number of records without a row."""
    notes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Remark -> number of records that were changed."""
    redacted: int = 0
    """Number of texts in which secrets were hidden."""
    origins: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, "dict[str, int]"])
    """Table -> text of an origin -> number of rows."""
    metrics: Mapping[str, str] = field(default_factory=dict[str, str])
    """Metric -> kind of its rows."""
    types: Mapping[str, str] = field(default_factory=dict[str, str])
    """Metric -> type that the file declares."""
    roles: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, "dict[str, str]"])
    """Metric -> catalogue row that the file declares."""
    first_ns: Mapping[str, int] = field(default_factory=dict[str, int])
    """Table -> time of its first row."""
    last_ns: Mapping[str, int] = field(default_factory=dict[str, int])
    """Table -> time of its last row."""
    folder: str = ""
    """Name of the folder with the rows."""


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """A file to read."""

    path: Path
    name: str
    size: int
    refusal: str = ""
    """Why it cannot be read, if it is a database folder or a damaged archive; otherwise empty."""


def list_inputs(paths: Sequence[Path]) -> list[InputFile]:
    """Return the files at and below paths, with archives unpacked; damaged archives and databases have a refusal."""
    inputs: list[InputFile] = []
    for path in paths:
        if not path.exists():
            raise DataError(f"{path} does not exist; give a file or folder of telemetry")
        files = list(walk_files([path]))
        databases = _find_databases(files, path)
        inputs += [
            InputFile(path=folder, name=folder.name, size=0, refusal=_DATABASE_REFUSAL.format(folder=folder))
            for folder in databases
        ]
        for file in files:
            if any(folder in file.parents for folder in databases):
                continue
            if is_archive(file):
                try:
                    folder = unpack(file)
                except DiskFullError:
                    raise
                except DataError as error:
                    inputs.append(InputFile(path=file, name=file.name, size=0, refusal=str(error)))
                    continue
                inputs += [
                    _build_input(inner, f"{file.name}/{inner.relative_to(folder)}") for inner in walk_files([folder])
                ]
            else:
                inputs.append(_build_input(file, file.relative_to(path).as_posix() if path.is_dir() else file.name))
    return inputs


def _find_databases(files: Sequence[Path], top: Path) -> list[Path]:
    """Return the data folders of Prometheus among files: those with blocks, or with a write-ahead log."""
    folders = set[Path]()
    for file in files:
        block = file.parent
        if file.name == "index" and block.joinpath("meta.json").is_file() and block.joinpath("chunks").is_dir():
            folders.add(block.parent if top in block.parents else block)
        elif block.name == "wal" and block.with_name("chunks_head").is_dir():
            folders.add(block.parent)
    return sorted(folders)


def _build_input(path: Path, name: str) -> InputFile:
    try:
        size = path.stat().st_size
    except OSError:
        size = 0
    return InputFile(path=path, name=name, size=size)


def stage_files(
    inputs: Sequence[InputFile],
    stage: Path,
    mapping: TelemetryMapping,
    redactor: Callable[[], Redactor],
    advance: Callable[[int], None] = lambda count: None,
) -> list[FileFacts]:
    """Read files into a folder, and return the facts about each file that the mapping does not skip.

    The folder may have files that an interrupted run has staged. `advance` is called with numbers of bytes read.
    """
    facts: list[FileFacts] = []
    seen: dict[str, str] = {}
    for file in inputs:
        refusal, copy_of, name = file.refusal, "", file.name
        rule = mapping.rule_for(name)
        if rule.skip and not refusal:
            advance(file.size)
            continue
        if not refusal:
            try:
                content = open_content(file.path, name)
            except DataError as error:
                refusal = str(error)
            else:
                copy_of = seen.setdefault(_content_digest(content), name)
                if copy_of == name:
                    facts.append(_stage_file(content, stage, rule, mapping, redactor(), advance))
                    continue
                refusal = f"{name} has the same content as {copy_of}"
            advance(file.size)
        facts.append(FileFacts(name=name, format="", refusal=refusal, copy_of=copy_of))
    return facts


def _content_digest(content: Content) -> str:
    """Return a digest of the size and three pieces of a file, to find files with the same content."""
    digest = hashlib.sha256(str(content.size).encode())
    with content.path.open("rb") as file:
        for start in (0, content.size // 2, max(0, content.size - (1 << 20))):
            file.seek(start)
            digest.update(file.read(1 << 20))
    return digest.hexdigest()


def _stage_file(
    content: Content,
    stage: Path,
    rule: FileRule,
    mapping: TelemetryMapping,
    redact: Redactor,
    advance: Callable[[int], None],
) -> FileFacts:
    state = content.path.stat()
    source = (_READERS_VERSION, str(content.path), content.name, state.st_size, state.st_mtime_ns)
    key = [*source, asdict(rule), mapping.time_zone, redact.key]
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    folder, partial = stage / name, stage / f"{name}.incomplete"
    if (folder / FACTS).is_file():
        advance(content.size)
        return FileFacts(**json.loads((folder / FACTS).read_text(encoding="utf-8")))
    shutil.rmtree(partial, ignore_errors=True)
    with translate_disk_full(stage):
        partial.mkdir(parents=True)
        facts = _read_into(partial, content, rule, mapping, redact, advance)
        facts = replace(facts, folder=name)
        replace_text(partial / FACTS, json.dumps(asdict(facts)) + "\n")
        partial.rename(folder)
    return facts


def _read_into(
    folder: Path,
    content: Content,
    rule: FileRule,
    mapping: TelemetryMapping,
    redact: Redactor,
    advance: Callable[[int], None],
) -> FileFacts:
    rows = StagedRows(folder, redact)
    origin = origin_of_path(content.path)
    facts = {"service": rule.service, "pod": rule.pod, "container": rule.container}
    context = ReadingContext(
        rows=rows,
        zone=zone_of(rule.time_zone or mapping.time_zone),
        origin=origin._replace(**{name: text for name, text in facts.items() if text}),
    )
    refusal, kind = "", ""
    try:
        kind = read_file(content, context, rule, advance)
    except DataError as error:
        refusal = str(error)
    except Exception as error:
        # One damaged file must not end the import of thousands.
        _log.debug("%s", content.name, exc_info=True)
        refusal = f"{content.name} cannot be read ({type(error).__name__}: {brief(printable(str(error)), 100)})"
    rows.close()
    if not refusal and not rows.rows:
        refusal = _refuse_without_rows(content.name, kind, rows.dropped, bool(rows.types))
    copied: dict[str, Any] = {name: dict(getattr(rows, name)) for name in _COPIED_FACTS}
    return FileFacts(
        name=content.name,
        format="" if refusal else kind,
        refusal=refusal,
        redacted=redact.changed,
        origins={table: dict(counts) for table, counts in rows.origins.items()},
        **copied,
    )


_COPIED_FACTS = ("rows", "dropped", "notes", "metrics", "types", "roles", "first_ns", "last_ns")
"""Fields of `StagedRows` that `FileFacts` has too."""


def _refuse_without_rows(name: str, kind: str, dropped: Counter[str], has_types: bool) -> str:
    if has_types and not dropped:
        return ""
    if not dropped:
        return f"{name} is {kind} without records"
    reason, count = dropped.most_common(1)[0]
    total = sum(dropped.values())
    share = f"each of its {total:,} records" if count == total else f"{count:,} of {total:,} records"
    share = "it" if total == 1 else share
    return f"{name} is {kind}, but nothing in it is usable: {share} {reason}"
