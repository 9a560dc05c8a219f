"""Every file of an episode, checked before anything uses it: the one gate for data that somebody else may have made."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from faultset.core.errors import DataError
from faultset.core.printable import printable
from faultset.core.reading.regular_files import FileStamp
from faultset.datasets.format.context import CONTEXT_FILE, read_context
from faultset.datasets.format.episodes import JOURNAL_FILE, table_file
from faultset.datasets.format.manifests import FileRecord
from faultset.datasets.format.schemas import TRUTH_TABLES
from faultset.datasets.format.storage import open_table
from faultset.datasets.format.summaries import sha256_of
from faultset.datasets.format.truth import evidence_table, read_journal, read_label
from faultset.datasets.metrics.roles import catalogue_with
from faultset.datasets.validation.labels import label_problems
from faultset.datasets.validation.tables import table_problems

REVISION = 1
"""To be raised when a check becomes stricter, so that files are checked again."""


def episode_files(tables: Iterable[str]) -> list[str]:
    """Return the paths of all files of an episode with these telemetry tables, below its folder."""
    return [CONTEXT_FILE, *map(table_file, (*tables, *TRUTH_TABLES)), JOURNAL_FILE]


def check_episode_files(
    folder: Path,
    records: Mapping[str, FileRecord],
    *,
    episode: str | None = None,
    names: Collection[str] | None = None,
) -> None:
    """Check files of an episode; raise DataError for the first that is not what it must be.

    Checked are: regular file, recorded size, hash and number of rows, schema, nulls, UTF-8, order, times inside the
    view, JSON inside tables, and that context and label are of this episode and do not contradict each other. What
    passes can be read by every method without an error that is the data's.

    Parameters
    ----------
    folder
        `DATASET/episodes/<id>`, or another folder with the same files.
    records
        Path of each file of the episode -> what the version recorded of it.
    episode
        Id of the episode; the name of the folder by default.
    names
        The files to check, of those in `records`, all by default; the context is needed to check any other.

    Raises
    ------
    DataError
        Names the file, what was wanted and what was found.
    """
    check_recorded(folder, {name: record for name, record in records.items() if names is None or name in names})
    check_content(folder, episode or folder.name, names)


def check_recorded(folder: Path, records: Mapping[str, FileRecord]) -> dict[str, FileStamp]:
    """Compare files with what a version recorded of them; return the stamps that they had before they were read."""
    stamps = {}
    for name, record in records.items():
        path = folder / name
        stamps[name] = FileStamp.of(path, folder)
        problem = record_problem(path, record, stamps[name])
        if problem is not None:
            raise DataError(f"{printable(path)} {problem}")
    return stamps


def record_problem(path: Path, record: FileRecord, stamp: FileStamp) -> str | None:
    """Say how a file differs from what a version recorded; None when it does not."""
    if stamp.bytes != record.bytes:
        return f"has {stamp.bytes} bytes instead of {record.bytes}; restore it"
    if sha256_of(path) != record.sha256:
        return "has another content than when the version was made (SHA-256 differs); restore it"
    return None


def check_content(folder: Path, episode: str, names: Collection[str] | None = None) -> None:
    """Check what files of an episode say; raise DataError for the first that is not what it must be."""
    for name, problem in content_problems(folder, episode, names):
        raise DataError(f"{printable(folder / name)}: {problem}; restore the file")


def content_problems(folder: Path, episode: str, names: Collection[str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield every file of an episode that is not what it must be, with what is wrong.

    Raises
    ------
    DataError
        A file cannot be read at all.
    """
    context = read_context(folder)
    if context.episode != episode:
        yield CONTEXT_FILE, f"is of episode {context.episode}"
        return
    catalogue_with(context.metric_roles)
    names = episode_files(context.tables) if names is None else names
    for table in context.tables:
        name = table_file(table)
        if name in names:
            for problem in table_problems(folder / name, table, context):
                yield name, problem
    name = table_file("label")
    if name in names:
        for problem in label_problems(context, read_label(folder)):
            yield name, problem
    if table_file("evidence") in names:
        evidence_table(folder)
    if JOURNAL_FILE in names:
        read_journal(folder)


def rows_problem(path: Path, record: FileRecord, schema: pa.Schema) -> str | None:
    """Say how the number of rows of a Parquet file differs from what a version recorded."""
    with open_table(path, path.stem, schema) as file:
        rows = file.metadata.num_rows
    return None if rows == record.rows else f"has {rows} rows instead of {record.rows}; restore it"
