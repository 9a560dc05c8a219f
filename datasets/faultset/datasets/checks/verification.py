"""Checking a version: are its files what was recorded, do they say what they should, does nothing tell the answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from faultset.core.errors import DataError
from faultset.datasets.checks.chance import chance_findings, onset_findings
from faultset.datasets.checks.findings import Finding
from faultset.datasets.checks.journals import journal_messages
from faultset.datasets.checks.leaks import leak_findings
from faultset.datasets.dataset import Dataset
from faultset.datasets.format.context import CONTEXT_FILE, EpisodeContext, read_context
from faultset.datasets.format.episodes import EPISODES, TELEMETRY, TRUTH
from faultset.datasets.format.labels import Label
from faultset.datasets.format.schemas import TABLES, TRUTH_TABLES, stored, time_column
from faultset.datasets.format.storage import damage_named, open_parquet
from faultset.datasets.format.summaries import FileRecord, sha256_of
from faultset.datasets.format.truth import read_evidence, read_journal, read_label
from faultset.datasets.format.versions import read_manifest
from faultset.datasets.views import EpisodeView

_INSTANTS = ("inject_start", "inject_done", "recover_start", "recover_done")


def verify(root: Path | str, version: str | None = None) -> list[Finding]:
    """Check a version thoroughly and return all that was found; an empty list means that all is well.

    Files: present, of the recorded size, hash and number of rows, nothing beside them. Tables: whole, of the
    schema, inside the view. Labels: inside the episode, targets among the candidates. Views: no trace of the
    fault's name, the injector or the journal (`faultset.datasets.checks.leaks`), and nothing in lengths, times and row
    counts that predicts whether there is a fault (`faultset.datasets.checks.chance`).
    """
    root = Path(root)
    dataset = Dataset(root, read_manifest(root, version))
    findings: list[Finding] = []
    sound: list[str] = []
    for episode in dataset.episodes:
        found = list(_file_findings(root, episode, dataset.files[episode]))
        if not any(finding.severity == "error" for finding in found):
            found += _content_findings(root, episode)
        if not any(finding.check in ("files", "parquet", "schema", "context") for finding in found):
            sound.append(episode)
        findings += found
    labels = {episode: read_label(dataset.path(episode)) for episode in sound}
    views = {episode: dataset.view(episode) for episode in sound}
    journals = {episode: read_journal(dataset.path(episode)) for episode in sound}
    findings += _declaration_findings(views)
    for episode in sound:
        findings += _source_findings(episode, dataset.path(episode))
    findings += leak_findings(views, labels, journals)
    findings += chance_findings(views, {episode: label.fault is not None for episode, label in labels.items()})
    findings += onset_findings(views, {episode: label.inject_start_ns for episode, label in labels.items()})
    if len(sound) < len(dataset.episodes):
        findings.append(
            _finding(
                "note",
                "leak",
                f"views of {len(dataset.episodes) - len(sound)} of {len(dataset.episodes)} episodes were not "
                "searched because their files are damaged",
            )
        )
    return findings


def _finding(severity: Any, check: str, message: str, episode: str | None = None, file: str | None = None) -> Finding:
    path = f"{EPISODES}/{episode}/{file}" if file is not None else None
    return Finding(severity=severity, check=check, episode=episode, file=path, message=message)


def _file_findings(root: Path, episode: str, records: Mapping[str, FileRecord]) -> Iterator[Finding]:
    folder = root / EPISODES / episode
    declared = _declared_tables(folder)
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    for name in sorted(_expected(declared) - records.keys()):
        yield _finding("error", "files", "the version does not list it", episode, name)
    for name in sorted(present - records.keys()):
        yield _finding("error", "files", "is not part of the version; remove it", episode, name)
    for name, record in records.items():
        path = folder / name
        if name not in present:
            yield _finding("error", "files", "is missing; restore it", episode, name)
            continue
        size = path.stat().st_size
        if size != record.bytes:
            message = f"has {size} bytes instead of {record.bytes}; restore it"
            yield _finding("error", "checksum", message, episode, name)
        elif sha256_of(path) != record.sha256:
            message = "its content has changed since the version was made (SHA-256 differs); restore it"
            yield _finding("error", "checksum", message, episode, name)
        if path.suffix == ".parquet":
            yield from _parquet_findings(path, episode, name, record, declared)


def _declared_tables(folder: Path) -> Mapping[str, pa.Schema]:
    try:
        return read_context(folder).tables
    except DataError:
        return TABLES  # the damage is reported where the context is read


def _expected(declared: Iterable[str]) -> set[str]:
    telemetry = {f"{TELEMETRY}/{table}.parquet" for table in declared}
    truth = {f"{TRUTH}/{table}.parquet" for table in TRUTH_TABLES}
    return {CONTEXT_FILE, f"{TRUTH}/journal.jsonl"} | telemetry | truth


def _parquet_findings(
    path: Path, episode: str, name: str, record: FileRecord, declared: Mapping[str, pa.Schema]
) -> Iterator[Finding]:
    try:
        file = open_parquet(path)
        with damage_named(path), file:
            rows = sum(len(batch) for batch in file.iter_batches())
            schema = file.schema_arrow
    except DataError as error:
        yield _finding("error", "parquet", str(error), episode, name)
        return
    if rows != record.rows:
        yield _finding("error", "checksum", f"has {rows} rows instead of {record.rows}; restore it", episode, name)
    known = declared.get(path.stem) or TRUTH_TABLES.get(path.stem)
    if known is None:
        message = "is no table of this schema version, and the context does not declare it"
        yield _finding("error", "schema", message, episode, name)
        return
    for message in _schema_differences(stored(known), schema):
        yield _finding("error", "schema", message, episode, name)


def _schema_differences(wanted: pa.Schema, found: pa.Schema) -> Iterator[str]:
    if wanted.names != found.names:
        missing = sorted(set(wanted.names) - set(found.names))
        extra = sorted(set(found.names) - set(wanted.names))
        yield f"columns differ: missing {missing}, unknown {extra}, wanted in the order {wanted.names}"
        return
    for field in wanted:
        other = found.field(field.name)
        kind = other.type.value_type if pa.types.is_dictionary(other.type) else other.type
        if not _same_type(kind, field.type):
            yield f"column {field.name} is of type {other.type}, wanted is {field.type}"


def _same_type(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Compare types but for what other writers do (wide strings) and what older releases lack (a struct's field)."""
    if pa.types.is_list(wanted) or pa.types.is_large_list(wanted):
        listed = pa.types.is_list(found) or pa.types.is_large_list(found)
        return listed and _same_type(found.value_type, wanted.value_type)
    if pa.types.is_struct(wanted):
        kinds = {field.name: field.type for field in wanted}
        return pa.types.is_struct(found) and all(
            field.name in kinds and _same_type(field.type, kinds[field.name]) for field in found
        )
    return str(found).replace("large_", "") == str(wanted)


def _content_findings(root: Path, episode: str) -> list[Finding]:
    folder = root / EPISODES / episode
    try:
        context = read_context(folder)
        label = read_label(folder)
    except DataError as error:
        return [_finding("error", "context", str(error), episode)]
    found = [_finding("error", "label", message, episode) for message in _label_messages(episode, context, label)]
    times: dict[str, pa.ChunkedArray] = {}
    for table in context.tables:
        path = folder / TELEMETRY / f"{table}.parquet"
        file = open_parquet(path)
        with damage_named(path), file:
            rows = file.read(columns=["episode", time_column(table)])
            times[table] = rows[time_column(table)]
        name = f"{TELEMETRY}/{table}.parquet"
        if len(rows) and rows["episode"].unique().to_pylist() != [episode]:
            found.append(_finding("error", "schema", "has rows of another episode", episode, name))
        outside = _rows_outside(rows[time_column(table)], context)
        if outside:
            message = f"{outside} of {len(rows)} rows lie outside the view"
            found.append(_finding("error", "window", message, episode, name))
    objects = folder / TELEMETRY / "objects.parquet"
    file = open_parquet(objects)
    with damage_named(objects), file:
        changes = file.read(columns=["time", "kind", "name"])
    messages = journal_messages(read_journal(folder), label, times, changes)
    journal = f"{TRUTH}/journal.jsonl"
    return found + [_finding("error", "journal", message, episode, journal) for message in messages]


def _declaration_findings(views: Mapping[str, EpisodeView]) -> Iterator[Finding]:
    """Yield a finding for each added table that has other columns in some episode than in the first that has it."""
    first: dict[str, tuple[str, pa.Schema]] = {}
    for episode in sorted(views):
        for added in views[episode].context.added_tables:
            other, schema = first.setdefault(added.name, (episode, added.schema))
            if not added.schema.equals(schema, check_metadata=True):
                message = f"table {added.name} is declared otherwise than in episode {other}; read them apart"
                yield _finding("warning", "schema", message, episode, f"{TELEMETRY}/{added.name}.parquet")


def _source_findings(episode: str, folder: Path) -> Iterator[Finding]:
    """Yield a finding for each source of telemetry that failed in an episode."""
    evidence = read_evidence(folder)
    for row in evidence[(evidence["check"] == "source") & ~evidence["passed"]].itertuples():
        message = f"the source {row.subject} has recorded nothing: {row.detail}"
        yield _finding("warning", "source", message, episode)


def _rows_outside(times: pa.ChunkedArray, context: EpisodeContext) -> int:
    stamps = times.cast(pa.int64()).to_numpy()
    return int(((stamps < context.view_start_ns) | (stamps >= context.view_end_ns)).sum())


def _label_messages(episode: str, context: EpisodeContext, label: Label) -> Iterator[str]:
    if context.episode != episode or label.episode != episode:
        yield f"names another episode: context {context.episode}, label {label.episode}"
    for name in ("view_start", "view_end", "reference_end"):
        if getattr(label, f"{name}_ns") != getattr(context, f"{name}_ns"):
            yield f"{name} differs between label and context"
    for service in sorted({*label.targets, *_cause_services(label)} - set(context.services)):
        yield f'"{service}" is a target or root cause but not among the candidates'
    if label.fault is None:
        if label.verdict != "none":
            yield f'an episode without a fault must have the verdict "none", not "{label.verdict}"'
        if label.targets or label.root_causes:
            yield "an episode without a fault has targets or root causes"
        return
    if not label.targets:
        yield "a fault without a target"
    if label.verdict not in ("manifest", "latent", "silent", "unknown"):
        yield f'verdict "{label.verdict}" must be manifest, latent, silent or unknown'
    if label.inject_start_ns is None:
        yield "a fault without the time of its injection"
        return
    if not context.reference_end_ns <= label.inject_start_ns < context.view_end_ns:
        yield "the injection does not start between the reference window and the end of the view"
    instants = [at_ns for name in _INSTANTS if (at_ns := getattr(label, f"{name}_ns")) is not None]
    if instants != sorted(instants):
        yield f"{', '.join(_INSTANTS)} are not in order"
    for name, at_ns in (("effective", label.effective_ns), ("first_manifest", label.first_manifest_ns)):
        if at_ns is not None and not context.view_start_ns <= at_ns < context.view_end_ns:
            yield f"{name} lies outside the view"
    if label.recover_start_ns is not None and label.recover_start_ns < context.view_end_ns:
        yield "the recovery starts before the view ends"


def _cause_services(label: Label) -> set[str]:
    return {cause.service for cause in label.root_causes if cause.service}
