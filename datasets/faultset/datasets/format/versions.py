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
from faultset.core.reading.regular_files import FileStamp, unreadable
from faultset.core.suggestions import suggest
from faultset.datasets.cache import CheckedFile, remember
from faultset.datasets.format.cards import write_card
from faultset.datasets.format.context import read_context
from faultset.datasets.format.episodes import EPISODES
from faultset.datasets.format.labels import Label, read_label
from faultset.datasets.format.manifests import (
    LIMIT_BYTES,
    VERSIONS,
    FileRecord,
    Manifest,
    Split,
    make_splits,
    read_manifest_file,
)
from faultset.datasets.format.schemas import SCHEMA_VERSION, TRUTH_TABLES, AddedTable, is_episode_id
from faultset.datasets.format.storage import open_table, translate_disk_full


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
        raise DataError(f"{path} is of a table that the context does not declare; remove it")
    with open_table(path, path.stem, schemas[path.stem]) as file:
        return file.metadata.num_rows


Bump = Literal["major", "minor", "patch"]
_SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")


def list_versions(path: Path | str) -> list[str]:
    """Return the versions of a dataset, oldest first; raise DataError when the folder is not a dataset."""
    root = Path(path)
    if not root.is_dir():
        raise DataError(f"there is no dataset at {root}: no such folder; give a folder that collect has written")
    return sorted_versions(file.stem for file in (root / VERSIONS).glob("*.json"))


def sorted_versions(names: Iterable[str]) -> list[str]:
    """Return those names that are versions, oldest first.

    Examples
    --------
    >>> sorted_versions(["1.10.0", "latest", "1.9.0"])
    ['1.9.0', '1.10.0']
    """
    return sorted((name for name in names if _SEMVER.fullmatch(name)), key=_numbers)


def read_manifest(root: Path | str, version: str | None = None) -> Manifest:
    """Return the content of a version file, the newest by default."""
    root = Path(root)
    known = list_versions(root)
    if not known:
        raise DataError(f"{root} has no versions: it is not a dataset, or its first campaign is not finished")
    if version is not None and version not in known:
        raise DataError(f'dataset {root} has no version "{version}"; {suggest(version, known)}')
    return read_manifest_file(root, version or known[-1])


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
    """Write a new version and return its name: 1.0.0 first, then the newest with `bump` applied.

    Parameters
    ----------
    root
        Dataset folder.
    summaries
        Of episodes that were summarised when they were written; the others are read here.
    episodes
        Ids; by default all complete episodes in the folder.
    bump
        Which part of the newest version to raise.
    provenance
        How the data was made; anything that JSON can hold.
    split_seed
        Seed of the train/test splits.
    splits
        Splits of another version with the same episodes; made anew by default.
    created
        Time stamp of the version; now by default.

    Raises
    ------
    DataError
        An episode that is named is not there or is damaged, or there is none.
    """
    root = Path(root)
    known = list_versions(root)
    version = _bumped(known[-1], bump) if known else "1.0.0"
    on_disk = complete_episodes(root)
    chosen = sorted(set(episodes)) if episodes is not None else on_disk
    for episode in chosen:
        if episode not in on_disk:
            raise DataError(f'{root} has no complete episode "{episode}"; {suggest(episode, on_disk)}')
    if not chosen:
        raise DataError(f"{root} has no complete episode to make a version of; collect some first")
    there = summaries or {}
    found = {episode: there.get(episode) or summarize_episode(root / EPISODES / episode) for episode in chosen}
    labels = {episode: summary.label for episode, summary in found.items()}
    apps = {episode: summary.app for episode, summary in found.items()}
    manifest = Manifest(
        schema_version=SCHEMA_VERSION,
        version=version,
        created=(created or datetime.now(UTC)).isoformat(timespec="seconds"),
        provenance=dict(provenance),
        episodes={episode: summary.files for episode, summary in found.items()},
        splits=make_splits(labels, apps, seed=split_seed) if splits is None else splits,
    )
    write_manifest(root, manifest)
    added = {table.name: table for summary in found.values() for table in summary.added_tables}
    titles = {episode: summary.app_title for episode, summary in found.items()}
    write_card(root, manifest, labels, titles, added_tables=list(added.values()))
    remember(root, _seen(found))
    return version


def _seen(summaries: Mapping[str, EpisodeSummary]) -> dict[str, CheckedFile]:
    return {
        f"{EPISODES}/{episode}/{name}": CheckedFile(
            stamp=summary.stamps[name], sha256=record.sha256, checked_for=summary.checked_for
        )
        for episode, summary in summaries.items()
        for name, record in summary.files.items()
        if name in summary.stamps
    }


def write_manifest(root: Path, manifest: Manifest) -> Path:
    """Write a version file; raise DataError when that version exists, even if made at the same moment."""
    folder = root / VERSIONS
    path = folder / f"{manifest.version}.json"
    text = manifest.to_json()
    if len(text.encode()) > LIMIT_BYTES:
        raise DataError(
            f"a version of {len(manifest.episodes)} episodes has a file of {len(text) / 2**20:.0f} MiB, and at most "
            f"{LIMIT_BYTES >> 20} MiB are read again; divide them among several datasets"
        )
    with translate_disk_full(root):
        folder.mkdir(exist_ok=True)
        try:
            with replacing(path, overwrite=False) as temporary:
                temporary.write_text(text, encoding="utf-8")
        except FileExistsError:
            raise DataError(
                f"version {manifest.version} of {root} exists; versions are never changed, make a new one"
            ) from None
    return path


def compare_versions(root: Path | str, old: str, new: str) -> list[dict[str, Any]]:
    """Return what happened to episodes between two versions.

    Returns
    -------
    list of dict
        For each episode that differs, in order of ids: `change` (added, removed or changed), `episode`, and in `files`
        which files have changed.

    Raises
    ------
    DataError
        There is no such dataset or version.
    """
    before, after = read_manifest(root, old).episodes, read_manifest(root, new).episodes
    changes = []
    for episode in sorted(before.keys() | after.keys()):
        first, second = before.get(episode, {}), after.get(episode, {})
        files = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
        if files:
            change = "added" if not first else "removed" if not second else "changed"
            changes.append({"change": change, "episode": episode, "files": files if change == "changed" else []})
    return changes


def complete_episodes(root: Path | str) -> list[str]:
    """Return the ids of all episode folders that are not being written; folders of other names are not ours."""
    folder = Path(root) / EPISODES
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(
        entry.name
        for entry in folder.iterdir()
        if is_episode_id(entry.name) and entry.is_dir() and not entry.is_symlink()
    )


def _bumped(version: str, bump: Bump) -> str:
    major, minor, patch = _numbers(version)
    if bump == "major":
        return f"{major + 1}.0.0"
    if bump == "minor":
        return f"{major}.{minor + 1}.0"
    if bump == "patch":
        return f"{major}.{minor}.{patch + 1}"
    raise DataError(f'"{bump}" is not a part of a version; it is major, minor or patch')


def _numbers(version: str) -> tuple[int, int, int]:
    major, minor, patch = (int(part) for part in version.split("."))
    return major, minor, patch
