"""Checking a version: are its files what was recorded, do they say what they should, does nothing tell the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from faultset.core.command_line.progress import Progress, StepCounter
from faultset.core.errors import DataError
from faultset.core.reading.regular_files import FileStamp
from faultset.datasets.checks.chance import chance_findings, onset_findings
from faultset.datasets.checks.findings import Finding
from faultset.datasets.checks.journals import journal_messages
from faultset.datasets.checks.leaks import leak_findings
from faultset.datasets.checks.references import reference_findings
from faultset.datasets.checks.telemetry import telemetry_findings
from faultset.datasets.dataset import Dataset
from faultset.datasets.episode import Episode
from faultset.datasets.format.context import CONTEXT_FILE, read_context
from faultset.datasets.format.episodes import EPISODES, JOURNAL_FILE, TRUTH, table_file
from faultset.datasets.format.manifests import FileRecord
from faultset.datasets.format.schemas import TABLES, TRUTH_TABLES, time_column
from faultset.datasets.format.storage import TableSchemaError
from faultset.datasets.format.summaries import file_names
from faultset.datasets.format.versions import read_manifest
from faultset.datasets.validation.episodes import content_problems, episode_files, record_problem, rows_problem
from faultset.datasets.views import EpisodeView

if TYPE_CHECKING:
    import pandas as pd


def verify(root: Path | str, version: str | None = None, *, progress: Progress | None = None) -> list[Finding]:
    """Check a version thoroughly and return all that was found; an empty list means that all is well.

    Files: present, of the recorded size, hash and number of rows, nothing beside them. Tables: whole, of the
    schema, sorted, inside the view, without odd values, ids and gaps (`faultset.datasets.checks.telemetry`). Labels:
    inside the episode, targets among the candidates. Views: no trace of the fault's name, the injector or the journal
    (`faultset.datasets.checks.leaks`), and nothing in lengths, times and row counts that predicts whether there is a
    fault (`faultset.datasets.checks.chance`).

    Parameters
    ----------
    root
        Dataset folder.
    version
        The newest by default.
    progress
        Told how many episodes are finished, and of how many.

    Raises
    ------
    DataError
        There is no such dataset or version, or its version file cannot be read.
    """
    root = Path(root)
    dataset = Dataset(root, read_manifest(root, version))
    findings: list[Finding] = []
    sound: list[str] = []
    steps = StepCounter(len(dataset.episodes), progress)
    for episode in dataset.episodes:
        found = list(_file_findings(root, episode, dataset.files[episode]))
        if not any(finding.severity == "error" for finding in found):
            found += _content_findings(root, episode)
        if all(finding.check in ("label", "window", "journal") for finding in found):
            sound.append(episode)
        findings += found
        steps.add()
    labels = {episode: dataset.label(episode) for episode in sound}
    views = {episode: dataset.view(episode) for episode in sound}
    journals = {episode: dataset[episode].journal for episode in sound}
    findings += _declaration_findings(views)
    findings += reference_findings(views)
    for episode in sound:
        findings += _source_findings(episode, dataset[episode].evidence)
    findings += telemetry_findings(views)
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
    present = set(file_names(folder)) if folder.is_dir() and not folder.is_symlink() else set()
    for name in sorted({*episode_files(declared)} - records.keys()):
        yield _finding("error", "files", "the version does not list it", episode, name)
    for name in sorted(present - records.keys()):
        yield _finding("error", "files", "is not part of the version; remove it", episode, name)
    for name, record in records.items():
        path = folder / name
        if name not in present:
            yield _finding("error", "files", "is missing; restore it", episode, name)
            continue
        try:
            problem = record_problem(path, record, FileStamp.of(path, root))
        except (DataError, PermissionError) as error:
            yield _finding("error", "files", str(error), episode, name)
            continue
        if problem is not None:
            yield _finding("error", "checksum", problem, episode, name)
        if path.suffix == ".parquet":
            yield from _parquet_findings(path, episode, name, record, declared)


def _declared_tables(folder: Path) -> Mapping[str, pa.Schema]:
    try:
        return read_context(folder).tables
    except DataError:
        return TABLES  # the damage is reported where the context is read


def _parquet_findings(
    path: Path, episode: str, name: str, record: FileRecord, declared: Mapping[str, pa.Schema]
) -> Iterator[Finding]:
    known = declared.get(path.stem) or TRUTH_TABLES.get(path.stem)
    if known is None:
        message = "is no table of this schema version, and the context does not declare it"
        yield _finding("error", "schema", message, episode, name)
        return
    try:
        problem = rows_problem(path, record, known)
    except DataError as error:
        check = "schema" if isinstance(error, TableSchemaError) else "parquet"
        yield _finding("error", check, str(error), episode, name)
        return
    if problem is not None:
        yield _finding("error", "checksum", problem, episode, name)


def _content_findings(root: Path, episode: str) -> list[Finding]:
    folder = root / EPISODES / episode
    try:
        found = [
            _finding("error", _check_of(name, problem), problem, episode, name)
            for name, problem in content_problems(folder, episode)
        ]
    except DataError as error:
        return [_finding("error", "context", str(error), episode)]
    if not any(finding.check in ("context", "rows") for finding in found):
        found += _journal_findings(episode, Episode(id=episode, path=folder))
    return found


def _journal_findings(episode: str, opened: Episode) -> Iterator[Finding]:
    view = opened.view
    times = {table: view.table(table, [time_column(table)])[time_column(table)] for table in view.tables}
    objects = view.table("objects", ["time", "kind", "name"])
    for message in journal_messages(opened.journal, opened.label, times, objects):
        yield _finding("error", "journal", message, episode, JOURNAL_FILE)


def _declaration_findings(views: Mapping[str, EpisodeView]) -> Iterator[Finding]:
    """Yield a finding for each added table that has other columns in some episode than in the first that has it."""
    first: dict[str, tuple[str, pa.Schema]] = {}
    for episode in sorted(views):
        for added in views[episode].context.added_tables:
            other, schema = first.setdefault(added.name, (episode, added.schema))
            if not added.schema.equals(schema, check_metadata=True):
                message = f"table {added.name} is declared otherwise than in episode {other}; read them apart"
                yield _finding("warning", "schema", message, episode, table_file(added.name))


def _source_findings(episode: str, evidence: pd.DataFrame) -> Iterator[Finding]:
    """Yield a finding for each source of telemetry that failed in an episode or lacks something."""
    for row in evidence[(evidence["check"] == "source") & ~evidence["passed"]].itertuples():
        message = f"the source of {row.subject} is not complete: {row.detail}"
        yield _finding("warning", "source", message, episode)


def _check_of(name: str, problem: str) -> str:
    if name.startswith(TRUTH):
        return "label"
    if "outside the view" in problem:
        return "window"
    return "context" if name == CONTEXT_FILE else "rows"
