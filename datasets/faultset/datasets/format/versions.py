"""Versions: immutable lists of episodes with checksums, provenance and splits."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from faultset.core.errors import DataError
from faultset.core.files import replacing
from faultset.core.reading.regular_files import FileStamp, explain_read_error
from faultset.core.suggestions import suggest
from faultset.datasets.cache import CheckedFile, store_checked_files
from faultset.datasets.format.cards import write_card
from faultset.datasets.format.context import read_context
from faultset.datasets.format.episodes import EPISODES
from faultset.datasets.format.labels import Label, read_label
from faultset.datasets.format.schemas import SCHEMA_VERSION, TRUTH_TABLES, AddedTable, is_episode_id
from faultset.datasets.format.storage import open_table, translate_disk_full
from faultset.datasets.format.version_files import (
    LIMIT_BYTES,
    VERSIONS,
    FileRecord,
    Split,
    VersionFile,
    make_splits,
    read_version_file,
)


@dataclass(frozen=True, kw_only=True)
class EpisodeSummary:
    """Facts about an episode that go into a version."""

    app: str
    label: Label
    files: Mapping[str, FileRecord]
    """Path in the episode -> record."""
    stamps: Mapping[str, FileStamp]
    """Path in the episode -> stamp, for the files in the dataset's folder."""
    app_title: str
    """`EpisodeContext.app_title`."""
    added_tables: tuple[AddedTable, ...] = ()
    check_name: str = ""
    """Name of the content check that all files passed; empty if they were only hashed."""


def summarize_episode(episode_path: Path, rows: Mapping[str, int] | None = None) -> EpisodeSummary:
    """Read and hash all files of an episode.

    Parameters
    ----------
    rows
        Row count of each Parquet file by its path in the episode; read from the files by default.
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
    return {name: sha256_of(root / name) for name in file_names(root)}


def sha256_of(path: Path) -> str:
    """Return a file's SHA-256 in hex."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise explain_read_error(path, error) from error


def _rows(path: Path, schemas: Mapping[str, pa.Schema]) -> int | None:
    if path.suffix != ".parquet":
        return None
    if path.stem not in schemas:
        raise DataError(f"{path} holds a table that the context does not declare; remove it")
    with open_table(path, path.stem, schemas[path.stem]) as file:
        return file.metadata.num_rows


Bump = Literal["major", "minor", "patch"]
_SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")


def list_versions(path: Path | str) -> list[str]:
    """Return the versions of a dataset, oldest first; raise DataError if the folder does not exist."""
    root = Path(path)
    if not root.is_dir():
        raise DataError(f"there is no dataset at {root}: no such folder; give a folder that collect has written")
    return sorted_versions(file.stem for file in (root / VERSIONS).glob("*.json"))


def sorted_versions(names: Iterable[str]) -> list[str]:
    """Return the names that are versions, oldest first.

    Examples
    --------
    >>> sorted_versions(["1.10.0", "latest", "1.9.0"])
    ['1.9.0', '1.10.0']
    """
    return sorted((name for name in names if _SEMVER.fullmatch(name)), key=_numbers)


def read_version(root: Path | str, version: str | None = None) -> VersionFile:
    """Read a version file, by default the newest."""
    root = Path(root)
    versions = list_versions(root)
    if not versions:
        raise DataError(
            f"{root} is not a dataset: it has no versions; give another folder, or finish its first campaign"
        )
    if version is not None and version not in versions:
        raise DataError(f'dataset {root} has no version "{version}"; {suggest(version, versions)}')
    return read_version_file(root, version or versions[-1])


def create_version(
    root: Path | str,
    *,
    summaries: Mapping[str, EpisodeSummary] | None = None,
    episodes: Iterable[str] | None = None,
    bump: Bump = "minor",
    provenance: Mapping[str, Any],
    split_seed: int = 0,
    splits: Mapping[str, Split] | None = None,
    created: datetime | None = None,
) -> str:
    """Write a new version and return its name: first 1.0.0, later the newest with `bump` applied.

    Parameters
    ----------
    root
        Dataset folder.
    summaries
        Summaries of episodes that were just written; the other episodes are read.
    episodes
        Ids; by default all complete episodes in the folder.
    bump
        Component of the newest version to increment.
    provenance
        Origin of the data; JSON values.
    split_seed
        Seed of the train/test splits.
    splits
        Splits of another version with the same episodes; computed by default.
    created
        Time stamp of the version; now by default.

    Raises
    ------
    DataError
        An episode is missing or damaged, or the dataset has none.
    """
    root = Path(root)
    versions = list_versions(root)
    version = _next_version(versions[-1], bump) if versions else "1.0.0"
    on_disk = complete_episodes(root)
    chosen = sorted(set(episodes)) if episodes is not None else on_disk
    for episode in chosen:
        if episode not in on_disk:
            raise DataError(f'{root} has no complete episode "{episode}"; {suggest(episode, on_disk)}')
    if not chosen:
        raise DataError(f"{root} has no complete episode for a version; collect some first")
    ready = summaries or {}
    contents = {episode: ready.get(episode) or summarize_episode(root / EPISODES / episode) for episode in chosen}
    labels = {episode: summary.label for episode, summary in contents.items()}
    apps = {episode: summary.app for episode, summary in contents.items()}
    version_file = VersionFile(
        schema_version=SCHEMA_VERSION,
        version=version,
        created=(created or datetime.now(UTC)).isoformat(timespec="seconds"),
        provenance=dict(provenance),
        episodes={episode: summary.files for episode, summary in contents.items()},
        splits=make_splits(labels, apps, seed=split_seed) if splits is None else splits,
    )
    write_version_file(root, version_file)
    added = {table.name: table for summary in contents.values() for table in summary.added_tables}
    titles = {episode: summary.app_title for episode, summary in contents.items()}
    write_card(root, version_file, labels, titles, added_tables=list(added.values()))
    store_checked_files(root, _checked_files(contents))
    return version


def _checked_files(summaries: Mapping[str, EpisodeSummary]) -> dict[str, CheckedFile]:
    return {
        f"{EPISODES}/{episode}/{name}": CheckedFile(
            stamp=summary.stamps[name], sha256=record.sha256, check_name=summary.check_name
        )
        for episode, summary in summaries.items()
        for name, record in summary.files.items()
        if name in summary.stamps
    }


def write_version_file(root: Path, version_file: VersionFile) -> Path:
    """Write a version file; raise DataError if the version exists, even if another process has just created it."""
    folder = root / VERSIONS
    path = folder / f"{version_file.version}.json"
    text = version_file.to_json()
    if len(text.encode()) > LIMIT_BYTES:
        raise DataError(
            f"a version file must have at most {LIMIT_BYTES >> 20} MiB, but that of {len(version_file.episodes)} "
            f"episodes has {len(text) / 2**20:.0f}; divide them among several datasets"
        )
    with translate_disk_full(root):
        folder.mkdir(exist_ok=True)
        try:
            with replacing(path, overwrite=False) as temporary:
                temporary.write_text(text, encoding="utf-8")
        except FileExistsError:
            raise DataError(
                f"version {version_file.version} of {root} exists and never changes; create another one"
            ) from None
    return path


def compare_versions(root: Path | str, old: str, new: str) -> list[dict[str, Any]]:
    """Return the differences between two versions.

    Returns
    -------
    list of dict
        For each different episode, sorted by id: `change` (added, removed or changed), `episode`, and `files`, the
        changed files.

    Raises
    ------
    DataError
        The dataset or a version does not exist.
    """
    before, after = read_version(root, old).episodes, read_version(root, new).episodes
    changes = []
    for episode in sorted(before.keys() | after.keys()):
        first, second = before.get(episode, {}), after.get(episode, {})
        files = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
        if files:
            change = "added" if not first else "removed" if not second else "changed"
            changes.append({"change": change, "episode": episode, "files": files if change == "changed" else []})
    return changes


def complete_episodes(root: Path | str) -> list[str]:
    """Return the ids of all complete episodes in a dataset folder; other folders are ignored."""
    folder = Path(root) / EPISODES
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(
        entry.name
        for entry in folder.iterdir()
        if is_episode_id(entry.name) and entry.is_dir() and not entry.is_symlink()
    )


def _next_version(version: str, bump: Bump) -> str:
    major, minor, patch = _numbers(version)
    if bump == "major":
        return f"{major + 1}.0.0"
    if bump == "minor":
        return f"{major}.{minor + 1}.0"
    if bump == "patch":
        return f"{major}.{minor}.{patch + 1}"
    raise DataError(f'bump must be major, minor or patch, got "{bump}"')


def _numbers(version: str) -> tuple[int, int, int]:
    major, minor, patch = map(int, version.split("."))
    return major, minor, patch
