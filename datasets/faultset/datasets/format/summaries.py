"""What a version records of each episode: its files' sizes, hashes and rows, and what splits are made by."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from faultset.core.errors import DataError
from faultset.core.printable import printable
from faultset.core.reading.regular_files import FileStamp, unreadable
from faultset.datasets.format.context import read_context
from faultset.datasets.format.labels import Label
from faultset.datasets.format.manifests import FileRecord
from faultset.datasets.format.schemas import TRUTH_TABLES, AddedTable
from faultset.datasets.format.storage import open_table
from faultset.datasets.format.truth import read_label


@dataclass(frozen=True, kw_only=True)
class EpisodeSummary:
    """What a version keeps of one episode."""

    app: str
    label: Label
    files: Mapping[str, FileRecord]
    """Path in the episode -> record."""
    stamps: Mapping[str, FileStamp]
    """Path in the episode -> state of the file, of those that are in the dataset's folder."""
    app_title: str
    """Application and a word on its stores, for people."""
    added_tables: tuple[AddedTable, ...] = ()
    checked_for: str = ""
    """What the content of all files was checked for; empty when they were only hashed."""


def summarize_episode(episode_path: Path, rows: Mapping[str, int] | None = None) -> EpisodeSummary:
    """Read an episode once, every byte of it, for the version that it will be part of.

    Parameters
    ----------
    rows
        Rows of each Parquet file by its path in the episode, where they are known; asked of the files by default.
    """
    context = read_context(episode_path)
    schemas = context.tables | TRUTH_TABLES
    files, stamps = {}, {}
    for name in file_names(episode_path):
        path = episode_path / name
        stamps[name] = FileStamp.of(path, episode_path)
        files[name] = FileRecord(
            bytes=stamps[name].bytes,
            sha256=sha256_of(path),
            rows=_rows(path, schemas) if rows is None else rows.get(name),
        )
    return EpisodeSummary(
        app=context.app,
        label=read_label(episode_path),
        files=files,
        stamps=stamps,
        added_tables=context.added_tables,
        app_title=context.app_title,
    )


def file_names(folder: Path) -> list[str]:
    """Return the path of everything below a folder that is not a folder itself, sorted; no link is followed."""
    return sorted(_below(folder, ""))


def _below(folder: Path, prefix: str) -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            yield from _below(entry, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name


def hashes_below(root: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder, by its path from there."""
    return {name: sha256_of(root / name) for name in file_names(root)}


def sha256_of(path: Path) -> str:
    """Return a file's SHA-256 in hex."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(path, error) from error


def _rows(path: Path, schemas: Mapping[str, pa.Schema]) -> int | None:
    if path.suffix != ".parquet":
        return None
    if path.stem not in schemas:
        raise DataError(f"{printable(path)} is of a table that the context does not declare; remove it")
    with open_table(path, path.stem, schemas[path.stem]) as file:
        return file.metadata.num_rows
