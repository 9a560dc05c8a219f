"""The output folder of a campaign, its workers' folders, and the cleanup after killed runs."""

from __future__ import annotations

import errno
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from faultset.collector.episodes.working_folders import (
    FAILED,
    RUNNING,
    WorkingFolder,
    remove_torn_notes,
    working_folders,
)
from faultset.collector.platforms.hosts import PlatformHost
from faultset.core.errors import DataError, PlatformError
from faultset.core.files import flush, write_text
from faultset.core.locks import LOCK, ProcessIdentity
from faultset.core.regular_files import read_regular
from faultset.datasets.format.context import CONTEXT_FILE
from faultset.datasets.format.episodes import EPISODES, INCOMPLETE, TELEMETRY, TRUTH
from faultset.datasets.format.recordings import RECORDINGS
from faultset.datasets.format.versions import VERSIONS

CAMPAIGNS = "campaigns"
WORKERS = ".workers"
_OWNER_FILE = "owner.json"
_NEW_PREFIX = ".new"
_LARGEST_OWNER_BYTES = 8192


@dataclass(frozen=True, kw_only=True)
class WorkerFolder:
    """The folder of one run of an episode on a worker, and the worker's process."""

    path: Path
    owner: ProcessIdentity

    @staticmethod
    def make(root: Path, episode: str) -> WorkerFolder:
        """Create a folder for a run of an episode by this process."""
        owner = ProcessIdentity.current()
        path = root / WORKERS / f"{episode}-{secrets.token_hex(8)}"
        new = path.with_name(f"{_NEW_PREFIX}-{path.name}")
        new.mkdir(parents=True)
        # other processes must never see a folder without its owner
        write_text(new / _OWNER_FILE, owner.model_dump_json())
        new.rename(path)
        return WorkerFolder(path=path, owner=owner)

    def hand_over(self, root: Path, episode: str) -> bool:
        """Move the finished episode into the dataset; return False if the dataset already has it."""
        target = root / EPISODES / episode
        target.parent.mkdir(exist_ok=True)
        try:
            (self.path / EPISODES / episode).rename(target)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            return False
        flush(target.parent)
        return True

    def keep_logs(self, root: Path, logs: Path | None) -> Path | None:
        """Move the logs of a failed episode to the dataset's folder and return their new path."""
        if logs is None:
            return None
        target = root / FAILED / logs.name
        target.parent.mkdir(exist_ok=True)
        shutil.rmtree(target, ignore_errors=True)
        with suppress(OSError):
            logs.rename(target)
        return target if target.exists() else None

    def remove(self) -> None:
        """Remove the folder, unless changes of its episode must still be undone."""
        if not any((self.path / RUNNING).glob("*.json")):
            shutil.rmtree(self.path, ignore_errors=True)


def worker_folders(root: Path) -> Iterator[WorkerFolder]:
    """Yield the folders of all workers' runs in a dataset, including running ones."""
    for path in sorted((root / WORKERS).glob("*/")):
        if path.name.startswith(_NEW_PREFIX) or path.is_symlink():
            continue
        with suppress(DataError, ValidationError):
            text = read_regular(path / _OWNER_FILE, limit_bytes=_LARGEST_OWNER_BYTES, below=root)
            yield WorkerFolder(path=path, owner=ProcessIdentity.model_validate_json(text))


_FOLDERS = (EPISODES, RECORDINGS, VERSIONS, CAMPAIGNS, RUNNING, FAILED, WORKERS)
_UNFINISHED_FILE = re.compile(r"\.[A-Za-z0-9.-]{1,80}\.[0-9a-f]{8}\.tmp")


def check_output_folder(root: Path) -> None:
    """Raise DataError unless a path can be a dataset's folder: a dataset, or empty or missing."""
    try:
        if not root.exists():
            return
        if not root.is_dir():
            raise DataError(f"--out must be a folder, but {root} is a file. Choose another")
        content = {path.name for path in root.iterdir()}
    except OSError as error:
        raise DataError(
            f"--out must be a readable folder, but {root} is not ({error.strerror}). Choose another"
        ) from None
    if content and not content & {*_FOLDERS, LOCK}:
        raise DataError(
            f"--out must be a dataset or an empty folder, but {root} contains {min(content)!r}. Choose another folder"
        )
    for name in _FOLDERS:
        if (root / name).is_symlink() or (name in content and not (root / name).is_dir()):
            raise DataError(f"{root / name} must be a folder, but is a link or a file. Move the whole dataset instead")


def make_output_folder(path: Path) -> None:
    """Create an output folder, or a folder in it, if it is missing; raise DataError if that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"--out must be a writable folder, but {path} is not ({error.strerror}). Choose another"
        ) from None


@dataclass(frozen=True, kw_only=True)
class RemovalResult:
    """Result of the cleanup after killed runs."""

    episodes: list[str] = field(default_factory=list)
    """Episodes whose changes were undone and whose folders were removed."""
    remaining: list[str] = field(default_factory=list)
    """Sentences about files and episodes that were not removed, with the reasons."""


def remove_abandoned(
    root: Path, host_of: Callable[[str], PlatformHost | None], *, take_over: bool = False
) -> RemovalResult:
    """Undo the changes of killed runs in a locked dataset and remove their folders; touch nothing else.

    `host_of` returns the host of a platform, or None to skip its episodes. `take_over` also cleans up after other
    machines and containers. Raises PlatformError if some changes could not be undone; their journal is kept for another
    attempt.
    """
    removal = RemovalResult()
    for working in working_folders(root):
        if isinstance(working, DataError):
            removal.remaining.append(f"{working}; not removed: delete it if no episode is running")
        elif _is_abandoned(working, take_over, removal):
            host = host_of(working.note.platform)
            if host is not None:
                host.undo_abandoned(working.journal)
                working.release()
                removal.episodes.append(working.note.episode)
    remove_torn_notes(root)
    for folder in (root, root / CAMPAIGNS, root / VERSIONS):
        for file in folder.glob(".*.tmp"):
            if _UNFINISHED_FILE.fullmatch(file.name) and not file.is_dir():
                with suppress(OSError):
                    file.unlink()
    for unfinished in (root / EPISODES).glob(f"*{INCOMPLETE}"):
        episode = unfinished.name.removesuffix(INCOMPLETE)
        if (root / RUNNING / f"{episode}.json").exists():
            continue
        if _is_unfinished_episode(unfinished):
            shutil.rmtree(unfinished, ignore_errors=True)
        else:
            removal.remaining.append(
                f"{unfinished} contains files that do not belong to an unfinished episode; not removed: move it away"
            )
    remove_abandoned_runs(root, host_of, removal, take_over=take_over)
    return removal


def remove_abandoned_runs(
    root: Path, host_of: Callable[[str], PlatformHost | None], removal: RemovalResult, *, take_over: bool = False
) -> None:
    """Clean up after workers that have ended and record the results in `removal`; see `remove_abandoned`."""
    for folder in worker_folders(root):
        state = folder.owner.state()
        if state == "alive":
            continue
        if state == "unknown" and not take_over:
            removal.remaining.append(
                f"{folder.path} belongs to {folder.owner}, another machine or container, and may still be in use; not "
                "removed: a worker there will remove it, or run 'faultset recover --break-lock'"
            )
            continue
        worker_removal = remove_abandoned(folder.path, host_of, take_over=take_over)
        removal.episodes.extend(worker_removal.episodes)
        removal.remaining.extend(worker_removal.remaining)
        folder.remove()


def remove_lost_episode(root: Path, episode: str, host: PlatformHost) -> None:
    """Undo the changes of an episode whose process was killed, and remove its folders.

    Raises PlatformError if some changes could not be undone; their journal is kept, so that `recover` can try again.
    """
    for working in working_folders(root):
        if isinstance(working, DataError) or working.note.episode != episode:
            continue
        if _is_abandoned(working, False, RemovalResult()):
            host.undo_abandoned(working.journal)
            working.release()
    unfinished = root / EPISODES / f"{episode}{INCOMPLETE}"
    if not (root / RUNNING / f"{episode}.json").exists() and _is_unfinished_episode(unfinished):
        shutil.rmtree(unfinished, ignore_errors=True)


def await_removal_or_notify(host: PlatformHost, episodes: Collection[str], notify: Callable[[str], None]) -> None:
    """Wait until the host has removed everything that belongs to the episodes; notify the user if that fails."""
    try:
        host.await_removal(episodes)
    except PlatformError as error:
        notify(str(error))


def _is_abandoned(working: WorkingFolder, take_over: bool, removal: RemovalResult) -> bool:
    state, owner = working.note.owner.state(), working.note.owner
    if state == "alive":
        return False
    if state == "unknown" and not take_over:
        removal.remaining.append(
            f"episode {working.note.episode} belongs to {owner}, another machine or container, and may still be "
            "running; not removed: run 'faultset recover --break-lock' once it has ended"
        )
        return False
    if objection := working.objection():
        removal.remaining.append(f"{working.path}: {objection}; not removed")
        return False
    return True


def _is_unfinished_episode(folder: Path) -> bool:
    """Return whether a folder contains only files of an unfinished episode."""
    if folder.is_symlink() or not folder.is_dir() or folder.parent.is_symlink():
        return False
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        is_ours = parts in ((TELEMETRY,), (TRUTH,), (CONTEXT_FILE,)) or (
            len(parts) == 2 and parts[0] in (TELEMETRY, TRUTH) and path.suffix in (".parquet", ".jsonl", ".tmp")
        )
        if path.is_symlink() or not is_ours:
            return False
    return True
