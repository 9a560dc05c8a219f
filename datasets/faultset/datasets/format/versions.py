"""Versions: immutable lists of episodes with checksums, provenance and splits."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from faultset.core.errors import DataError, suggest
from faultset.core.files import replacing
from faultset.datasets.cache import CheckedFile, store_checked_files
from faultset.datasets.format.cards import write_card
from faultset.datasets.format.context import read_context
from faultset.datasets.format.episodes import EPISODES
from faultset.datasets.format.incidents import make_recording_splits, summarize_recording
from faultset.datasets.format.labels import Label, read_label
from faultset.datasets.format.recordings import RECORDINGS, complete_recordings
from faultset.datasets.format.schemas import SCHEMA_VERSION, TRUTH_TABLES, AddedTable, is_episode_id
from faultset.datasets.format.storage import translate_disk_full
from faultset.datasets.format.version_files import (
    LIMIT_BYTES,
    VERSIONS,
    FileSummary,
    VersionFile,
    file_names,
    make_splits,
    read_version_file,
    summarize_files,
)


@dataclass(frozen=True, kw_only=True)
class EpisodeSummary(FileSummary):
    """Facts about an episode that go into a version."""

    app: str
    label: Label
    app_title: str
    """`EpisodeContext.app_title`."""
    added_tables: tuple[AddedTable, ...] = ()


def summarize_episode(episode_path: Path, rows: Mapping[str, int] | None = None) -> EpisodeSummary:
    """Read and hash all files of an episode."""
    context = read_context(episode_path)
    files, stamps = summarize_files(episode_path, file_names(episode_path), context.tables | TRUTH_TABLES, rows)
    return EpisodeSummary(
        app=context.app,
        label=read_label(episode_path),
        files=files,
        stamps=stamps,
        added_tables=context.added_tables,
        app_title=context.app_title,
    )


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

    >>> sorted_versions(["1.10.0", "latest", "1.9.0"])
    ['1.9.0', '1.10.0']
    """
    return sorted((name for name in names if _SEMVER.fullmatch(name)), key=_parse_version)


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
    splits_of: VersionFile | None = None,
    recordings: Mapping[str, Collection[int]] | None = None,
) -> str:
    """Write a new version and the dataset card; return its name: first 1.0.0, later the newest with `bump` applied.

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
    splits_of
        Another version with the same episodes and recordings, whose splits are kept; computed by default.
    recordings
        Recording -> numbers of its chunks; by default all complete ones in the folder.

    Raises
    ------
    DataError
        An episode or recording is missing or damaged, or the dataset has none.
    """
    root = Path(root)
    versions = list_versions(root)
    version = _next_version(versions[-1], bump) if versions else "1.0.0"
    ready = summaries or {}
    chosen = _select_complete("episode", episodes, complete_episodes(root), root)
    contents = {episode: ready.get(episode) or summarize_episode(root / EPISODES / episode) for episode in chosen}
    chunks = recordings or {}
    recorded = {
        recording: summarize_recording(root / RECORDINGS / recording, chunks.get(recording))
        for recording in _select_complete("recording", recordings, complete_recordings(root), root)
    }
    if not contents and not recorded:
        raise DataError(f"{root} has no complete episode for a version, and no recording; collect some first")
    labels = {episode: summary.label for episode, summary in contents.items()}
    apps = {episode: summary.app for episode, summary in contents.items()}
    version_file = VersionFile(
        schema_version=SCHEMA_VERSION,
        version=version,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        provenance=dict(provenance),
        episodes={episode: summary.files for episode, summary in contents.items()},
        splits=splits_of.splits if splits_of else make_splits(labels, apps, seed=split_seed),
        recordings={recording: summary.files for recording, summary in recorded.items()},
        recording_splits=splits_of.recording_splits if splits_of else make_recording_splits(recorded, seed=split_seed),
    )
    write_version_file(root, version_file)
    added = {table.name: table for summary in contents.values() for table in summary.added_tables}
    titles = {episode: summary.app_title for episode, summary in contents.items()}
    write_card(root, version_file, labels, titles, added_tables=list(added.values()), recordings=recorded)
    store_checked_files(root, _checked_files(EPISODES, contents) | _checked_files(RECORDINGS, recorded))
    return version


def _select_complete(kind: str, names: Iterable[str] | None, on_disk: Sequence[str], root: Path) -> list[str]:
    """Return the sorted names, by default all on the disk; raise DataError for a name that is not on the disk."""
    chosen = sorted(set(names)) if names is not None else [*on_disk]
    for name in chosen:
        if name not in on_disk:
            raise DataError(f'{root} has no complete {kind} "{name}"; {suggest(name, on_disk)}')
    return chosen


def _checked_files(folder: str, summaries: Mapping[str, FileSummary]) -> dict[str, CheckedFile]:
    return {
        f"{folder}/{episode}/{name}": CheckedFile(
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
            f"the file of a version must have at most {LIMIT_BYTES >> 20} MiB, but the file for "
            f"{len(version_file.episodes)} episodes and {len(version_file.recordings)} recordings has "
            f"{len(text) / 2**20:.0f}; divide them among several datasets"
        )
    with translate_disk_full(root):
        folder.mkdir(exist_ok=True)
        try:
            with replacing(path, overwrite=False) as temporary:
                temporary.write_text(text, encoding="utf-8")
        except FileExistsError:
            raise DataError(
                f"version {version_file.version} of {root} already exists and cannot be changed; create another one"
            ) from None
    return path


def compare_versions(root: Path | str, old: str, new: str) -> list[dict[str, Any]]:
    """Return the differences between two versions.

    Returns
    -------
    list of dict
        For each different episode or recording, sorted by id: `change` (added, removed or changed), `episode`, its id,
        and `files`, the changed files; empty if it was added or removed.

    Raises
    ------
    DataError
        The dataset or a version does not exist.
    """
    manifests = read_version(root, old), read_version(root, new)
    before, after = ({**version_file.episodes, **version_file.recordings} for version_file in manifests)
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
    major, minor, patch = _parse_version(version)
    if bump == "major":
        return f"{major + 1}.0.0"
    if bump == "minor":
        return f"{major}.{minor + 1}.0"
    if bump == "patch":
        return f"{major}.{minor}.{patch + 1}"
    raise DataError(f'bump must be major, minor or patch, got "{bump}"')


def _parse_version(version: str) -> tuple[int, int, int]:
    major, minor, patch = map(int, version.split("."))
    return major, minor, patch
