"""Read all files into a staging folder; each file is complete or absent there, so that an import can be resumed."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from faultset.core.errors import DataError, DiskFullError
from faultset.core.files import replace_text
from faultset.core.printable import brief, printable
from faultset.datasets.format.storage import translate_disk_full
from faultset.datasets.imports.archives import is_archive, unpack
from faultset.datasets.imports.telemetry.content import Content, open_content, walk_files
from faultset.datasets.imports.telemetry.identity import origin_of_path
from faultset.datasets.imports.telemetry.mapping import FileRule, TelemetryMapping, zone_of
from faultset.datasets.imports.telemetry.readers.context import ReadingContext
from faultset.datasets.imports.telemetry.recognition import read_file
from faultset.datasets.imports.telemetry.redaction import Redactor
from faultset.datasets.imports.telemetry.rows import StagedRows

_log = logging.getLogger(__name__)
FACTS = "facts.json"
_RULES_VERSION = 1
"""Incremented when readers change, so that files staged by an earlier release are read again."""


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
    """Return the files at and below paths, with archives unpacked; damaged archives and databases have a refusal.

    Raises
    ------
    DataError
        A path does not exist.
    """
    inputs: list[InputFile] = []
    for path in paths:
        if not path.exists():
            raise DataError(f"{path} does not exist; give a file or folder of telemetry")
        files = list(walk_files([path]))
        databases = _find_databases(files, path)
        inputs += [_database_input(folder) for folder in databases]
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


def _database_input(folder: Path) -> InputFile:
    return InputFile(
        path=folder,
        name=folder.name,
        size=0,
        refusal=(
            f"{folder} is a data folder of Prometheus, which only Prometheus can read; use "
            f'"faultset record --prometheus URL", or write it as text with "promtool tsdb dump-openmetrics {folder}"'
        ),
    )


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
    advance: Callable[[int], None] | None = None,
) -> list[FileFacts]:
    """Read files into a folder, and return the facts about each file that the mapping does not skip.

    Parameters
    ----------
    stage
        Existing folder, possibly with files that an interrupted run has staged.
    redactor
        Builds the redactor of a file.
    advance
        Called with the number of bytes that were read.
    """
    facts: list[FileFacts] = []
    seen: dict[str, str] = {}
    for file in inputs:
        if file.refusal:
            facts.append(FileFacts(name=file.name, format="", refusal=file.refusal))
            continue
        rule = mapping.rule_for(file.name)
        if rule.skip:
            _advance(advance, file.size)
            continue
        try:
            content = open_content(file.path, file.name)
        except DataError as error:
            _advance(advance, file.size)
            facts.append(FileFacts(name=file.name, format="", refusal=str(error)))
            continue
        identity = _content_digest(content)
        if identity in seen:
            _advance(advance, file.size)
            facts.append(
                FileFacts(
                    name=file.name,
                    format="",
                    refusal=f"{file.name} has the same content as {seen[identity]}",
                    copy_of=seen[identity],
                )
            )
            continue
        seen[identity] = file.name
        facts.append(_stage_file(content, stage, rule, mapping, redactor(), advance))
    return facts


def _advance(advance: Callable[[int], None] | None, count: int) -> None:
    if advance is not None:
        advance(count)


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
    advance: Callable[[int], None] | None,
) -> FileFacts:
    state = content.path.stat()
    key = [
        _RULES_VERSION,
        str(content.path),
        content.name,
        state.st_size,
        state.st_mtime_ns,
        asdict(rule),
        mapping.time_zone,
    ]
    name = hashlib.sha256(json.dumps([*key, redact.key], sort_keys=True).encode()).hexdigest()[:16]
    folder, partial = stage / name, stage / f"{name}.incomplete"
    if (folder / FACTS).is_file():
        _advance(advance, content.size)
        return read_facts(folder)
    shutil.rmtree(partial, ignore_errors=True)
    with translate_disk_full(stage):
        partial.mkdir(parents=True)
        facts = _read_into(partial, content, rule, mapping, redact, advance)
        facts = FileFacts(**{**asdict(facts), "folder": name})
        replace_text(partial / FACTS, json.dumps(asdict(facts)) + "\n")
        partial.rename(folder)
    return facts


def _read_into(
    folder: Path,
    content: Content,
    rule: FileRule,
    mapping: TelemetryMapping,
    redact: Redactor,
    advance: Callable[[int], None] | None,
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
    return FileFacts(
        name=content.name,
        format="" if refusal else kind,
        refusal=refusal,
        rows=dict(rows.rows),
        dropped=dict(rows.dropped),
        notes=dict(rows.notes),
        redacted=redact.changed,
        origins={table: dict(counts) for table, counts in rows.origins.items()},
        metrics=rows.metrics,
        types=rows.types,
        roles=rows.roles,
        first_ns=rows.first_ns,
        last_ns=rows.last_ns,
    )


def _refuse_without_rows(name: str, kind: str, dropped: Counter[str], has_types: bool) -> str:
    if has_types and not dropped:
        return ""
    if not dropped:
        return f"{name} is {kind} without records"
    reason, count = dropped.most_common(1)[0]
    total = sum(dropped.values())
    share = (
        "it"
        if total == 1
        else f"each of its {total:,} records"
        if count == total
        else f"{count:,} of {total:,} records"
    )
    return f"{name} is {kind}, but nothing in it is usable: {share} {reason}"


def read_facts(folder: Path) -> FileFacts:
    """Return the facts about a staged file."""
    content: dict[str, Any] = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    return FileFacts(**content)
