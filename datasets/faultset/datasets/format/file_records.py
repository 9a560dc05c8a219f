"""Size, hash and row count of the files of episodes and recordings."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from faultset.core.errors import DataError
from faultset.core.regular_files import FileStamp, explain_read_error
from faultset.datasets.format.storage import open_table
from faultset.datasets.format.version_files import FileRecord


@dataclass(frozen=True, kw_only=True)
class FileSummary:
    """Records of the files of an episode or recording."""

    files: Mapping[str, FileRecord]
    """Path below its folder -> record."""
    stamps: Mapping[str, FileStamp] = field(default_factory=dict[str, FileStamp])
    """Path below its folder -> stamp, for the files in the dataset's folder."""
    check_name: str = ""
    """Name of the content check that all files passed; empty if they were only hashed."""


def summarize_files(
    folder: Path, names: Iterable[str], schemas: Mapping[str, pa.Schema], rows: Mapping[str, int] | None = None
) -> tuple[dict[str, FileRecord], dict[str, FileStamp]]:
    """Read and hash files; return their records and stamps.

    Parameters
    ----------
    folder
        Folder of the episode or recording.
    names
        Paths below it.
    schemas
        Schemas of the tables by name.
    rows
        Row count of each Parquet file by its path; read from the files by default.
    """
    files, stamps = {}, {}
    for name in names:
        path = folder / name
        stamps[name] = FileStamp.of(path, folder)
        files[name] = FileRecord(
            bytes=stamps[name].bytes,
            sha256=compute_sha256(path),
            rows=_read_row_count(path, schemas) if rows is None else rows.get(name),
        )
    return files, stamps


def file_names(folder: Path) -> list[str]:
    """Return the sorted relative paths of everything below a folder except folders; links are not followed."""
    return sorted(_walk(folder, ""))


def _walk(folder: Path, prefix: str) -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name


def hashes_below(root: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder by its relative path."""
    return {name: compute_sha256(root / name) for name in file_names(root)}


def compute_sha256(path: Path) -> str:
    """Return a file's SHA-256 in hex."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise explain_read_error(path, error) from error


def _read_row_count(path: Path, schemas: Mapping[str, pa.Schema]) -> int | None:
    if path.suffix != ".parquet":
        return None
    if path.stem not in schemas:
        raise DataError(f"{path} holds a table that the context does not declare; remove it")
    with open_table(path, path.stem, schemas[path.stem]) as file:
        return file.metadata.num_rows
