"""The output folder of a campaign, the folders of its workers' runs, and the removal of what killed runs left."""

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

from faultset.collector.campaigns.records import CAMPAIGNS
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
from faultset.core.reading.regular_files import read_regular
from faultset.datasets.format.context import CONTEXT_FILE
from faultset.datasets.format.episodes import EPISODES, INCOMPLETE, TELEMETRY, TRUTH
from faultset.datasets.format.versions import VERSIONS

WORKERS = ".workers"
_OWNER = "owner.json"
_NEW = ".new"
_LARGEST_OWNER_BYTES = 8192


@dataclass(frozen=True, kw_only=True)
class WorkerFolder:
    """The folder of one run of an episode on a worker, and the worker's process."""

    path: Path
    owner: ProcessIdentity

    @staticmethod
    def make(root: Path, episode: str) -> WorkerFolder:
        """Make a folder for a run of an episode that this process cares for."""
        owner = ProcessIdentity.current()
        path = root / WORKERS / f"{episode}-{secrets.token_hex(8)}"
        new = path.with_name(f"{_NEW}-{path.name}")
        new.mkdir(parents=True)
        # a folder is seen by others with its owner in it, or not at all
        write_text(new / _OWNER, owner.model_dump_json())
        new.rename(path)
        return WorkerFolder(path=path, owner=owner)

    def hand_over(self, root: Path, episode: str) -> bool:
        """Rename the finished episode into the dataset; say False when the dataset has it already."""
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
        """Move what a failed episode has left for a diagnosis to the dataset's folder, and return where it is."""
        if logs is None:
            return None
        kept = root / FAILED / logs.name
        kept.parent.mkdir(exist_ok=True)
        shutil.rmtree(kept, ignore_errors=True)
        with suppress(OSError):
            logs.rename(kept)
        return kept if kept.exists() else None

    def remove(self) -> None:
        """Remove the folder, unless an episode in it is still to be undone."""
        if not any((self.path / RUNNING).glob("*.json")):
            shutil.rmtree(self.path, ignore_errors=True)


def worker_folders(root: Path) -> Iterator[WorkerFolder]:
    """Yield the folders of runs that a dataset has, those that are going on among them."""
    for path in sorted((root / WORKERS).glob("*/")):
        if path.name.startswith(_NEW) or path.is_symlink():
            continue
        with suppress(DataError, ValidationError):
            text = read_regular(path / _OWNER, limit_bytes=_LARGEST_OWNER_BYTES, below=root)
            yield WorkerFolder(path=path, owner=ProcessIdentity.model_validate_json(text))


_FOLDERS = (EPISODES, VERSIONS, CAMPAIGNS, RUNNING, FAILED, WORKERS)
_TORN = re.compile(r"\.[A-Za-z0-9.-]{1,80}\.[0-9a-f]{8}\.tmp")


def check_output_folder(root: Path) -> None:
    """Refuse an output folder that holds something else.

    Raises
    ------
    DataError
        The path is a file, cannot be looked at, or is a folder with content that is no dataset.
    """
    try:
        if not root.exists():
            return
        if not root.is_dir():
            raise DataError(f"--out must be a folder, but {root} is a file; name another")
        content = {path.name for path in root.iterdir()}
    except OSError as error:
        raise DataError(f"--out cannot be {root} ({error.strerror}); name another folder") from None
    if content and not content & {*_FOLDERS, LOCK}:
        raise DataError(
            f"{root} holds {sorted(content)[0]!r} and is not a faultset dataset; name an empty or new folder with --out"
        )
    for name in _FOLDERS:
        if (root / name).is_symlink() or (name in content and not (root / name).is_dir()):
            raise DataError(f"{root / name} must be a folder, not a link or a file; move the whole dataset instead")


def make_output_folder(path: Path) -> None:
    """Make an output folder, or one below it, unless it is there; raise DataError where that is not possible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"--out cannot be {path} ({error.strerror}); name another folder") from None


@dataclass(frozen=True, kw_only=True)
class RemovalResult:
    """What was done about the rests of killed runs.

    Attributes
    ----------
    episodes
        Episodes that were undone and removed.
    left
        A sentence for everything that was left alone although no run owns it for sure.
    """

    episodes: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def remove_abandoned(
    root: Path, host_of: Callable[[str], PlatformHost | None], *, take_over: bool = False
) -> RemovalResult:
    """Undo and remove what killed runs left, and nothing that is not ours for sure.

    Parameters
    ----------
    root
        The dataset's folder, locked by this process.
    host_of
        Returns the host of a platform, or None to leave its episodes alone this time.
    take_over
        Also what runs on other machines and in other containers have left.

    Raises
    ------
    PlatformError
        Something could not be undone; what leads to it stays, so that it can be tried again.
    """
    removal = RemovalResult()
    for found in working_folders(root):
        if isinstance(found, DataError):
            removal.left.append(f"{found}; left alone: remove it if no episode runs")
        elif _is_abandoned(found, take_over, removal):
            host = host_of(found.note.platform)
            if host is not None:
                host.undo_abandoned(found.journal)
                found.release()
                removal.episodes.append(found.note.episode)
    remove_torn_notes(root)
    for folder in (root, root / CAMPAIGNS, root / VERSIONS):
        for torn in folder.glob(".*.tmp"):
            if _TORN.fullmatch(torn.name) and not torn.is_dir():
                with suppress(OSError):
                    torn.unlink()
    for unfinished in (root / EPISODES).glob(f"*{INCOMPLETE}"):
        episode = unfinished.name.removesuffix(INCOMPLETE)
        if (root / RUNNING / f"{episode}.json").exists():
            continue
        if _is_unfinished_episode(unfinished):
            shutil.rmtree(unfinished, ignore_errors=True)
        else:
            removal.left.append(f"{unfinished} is no unfinished episode; left alone: move it elsewhere")
    remove_abandoned_runs(root, host_of, removal, take_over=take_over)
    return removal


def remove_abandoned_runs(
    root: Path, host_of: Callable[[str], PlatformHost | None], removal: RemovalResult, *, take_over: bool = False
) -> None:
    """Undo and remove runs of episodes whose worker has ended; see `remove_abandoned`, whose result is added to."""
    for folder in worker_folders(root):
        state = folder.owner.state()
        if state == "alive":
            continue
        if state == "unknown" and not take_over:
            removal.left.append(
                f"{folder.path} is of {folder.owner}, another machine or container, and may still be used; left alone: "
                "it goes when a worker begins an episode there, or with 'faultset recover --break-lock'"
            )
            continue
        found = remove_abandoned(folder.path, host_of, take_over=take_over)
        removal.episodes.extend(found.episodes)
        removal.left.extend(found.left)
        folder.remove()


def remove_lost_episode(root: Path, episode: str, host: PlatformHost) -> None:
    """Undo and remove what an episode has left whose process was killed.

    Raises
    ------
    PlatformError
        Something could not be undone; what leads to it stays, so that `recover` tries again.
    """
    for found in working_folders(root):
        if isinstance(found, DataError) or found.note.episode != episode:
            continue
        if _is_abandoned(found, False, RemovalResult()):
            host.undo_abandoned(found.journal)
            found.release()
    unfinished = root / EPISODES / f"{episode}{INCOMPLETE}"
    if not (root / RUNNING / f"{episode}.json").exists() and _is_unfinished_episode(unfinished):
        shutil.rmtree(unfinished, ignore_errors=True)


def await_removal_or_notify(host: PlatformHost, episodes: Collection[str], notify: Callable[[str], None]) -> None:
    """Wait until what episodes had is gone from their host, and tell what stays; their results are there anyway."""
    try:
        host.await_removal(episodes)
    except PlatformError as error:
        notify(str(error))


def _is_abandoned(found: WorkingFolder, take_over: bool, removal: RemovalResult) -> bool:
    state, owner = found.note.owner.state(), found.note.owner
    if state == "alive":
        return False
    if state == "unknown" and not take_over:
        removal.left.append(
            f"episode {found.note.episode} was run by {owner}, another machine or container, and may still run; left "
            "alone: run 'faultset recover --break-lock' once it has ended"
        )
        return False
    if objection := found.objection():
        removal.left.append(f"{found.path}: {objection}; left alone")
        return False
    return True


def _is_unfinished_episode(folder: Path) -> bool:
    """Say whether a folder holds nothing but what is written of an episode before it is whole."""
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
