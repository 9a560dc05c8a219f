"""What a version records of each episode: its files' sizes, hashes and rows, and what splits are made by."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from faultset.datasets.format.context import read_context
from faultset.datasets.format.labels import Label
from faultset.datasets.format.schemas import AddedTable
from faultset.datasets.format.storage import damage_named
from faultset.datasets.format.truth import read_label


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """What a version remembers of one file."""

    bytes: int
    sha256: str
    rows: int | None
    """Rows of a Parquet file; None for other files."""


@dataclass(frozen=True, kw_only=True)
class EpisodeSummary:
    """What a version keeps of one episode."""

    app: str
    label: Label
    files: Mapping[str, Mapping[str, Any]]
    """Path in the episode -> bytes, sha256 and rows."""
    changed_ns: Mapping[str, int]
    """Path in the episode -> when the file was changed last."""
    added_tables: tuple[AddedTable, ...] = ()


def summary_of(episode_path: Path) -> EpisodeSummary:
    """Read an episode once, every byte of it, for the version that it will be part of."""
    files, changed_ns = {}, {}
    for path in sorted(episode_path.rglob("*")):
        if path.is_file():
            name = path.relative_to(episode_path).as_posix()
            stat = path.stat()
            changed_ns[name] = stat.st_mtime_ns
            files[name] = {"bytes": stat.st_size, "sha256": sha256_of(path), "rows": _rows(path)}
    context = read_context(episode_path)
    return EpisodeSummary(
        app=context.app,
        label=read_label(episode_path),
        files=files,
        changed_ns=changed_ns,
        added_tables=context.added_tables,
    )


def hashes_below(root: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder, by its path from there."""
    return {path.relative_to(root).as_posix(): sha256_of(path) for path in root.rglob("*") if path.is_file()}


def sha256_of(path: Path) -> str:
    """Return a file's SHA-256 in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _rows(path: Path) -> int | None:
    if path.suffix != ".parquet":
        return None
    with damage_named(path):
        return pq.read_metadata(path).num_rows
