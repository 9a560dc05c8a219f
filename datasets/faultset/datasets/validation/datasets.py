"""Checking the files of a version once, however often it is used."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from faultset.core.command_line.progress import Progress, StepCounter
from faultset.core.errors import DataError
from faultset.core.reading.regular_files import FileStamp
from faultset.datasets.cache.checked_files import CheckedFile, known_files, remember
from faultset.datasets.format.context import CONTEXT_FILE, read_context
from faultset.datasets.format.episodes import EPISODES
from faultset.datasets.format.manifests import FileRecord
from faultset.datasets.validation.episodes import REVISION, check_content, check_recorded, episode_files


def check_dataset_files(
    root: Path, episodes: Mapping[str, Mapping[str, FileRecord]], threads: int, progress: Progress | None = None
) -> None:
    """Check the files of episodes; those that passed and have not changed since are not read again.

    Parameters
    ----------
    root
        Dataset folder.
    episodes
        Episode -> path below its folder -> record of the file.
    threads
        Episodes that are read at once.
    progress
        Told how many episodes are finished, and of how many.

    Raises
    ------
    DataError
        Of the first episode that is damaged; see `check_episode_files` for what is checked.
    """
    known = known_files(root)
    steps = StepCounter(len(episodes), progress)
    seen: dict[str, CheckedFile] = {}
    try:
        with ThreadPoolExecutor(threads) as pool:
            running = [pool.submit(_checked, root, episode, files, known) for episode, files in episodes.items()]
            try:
                for done in as_completed(running):
                    seen |= done.result()
                    steps.add()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    finally:
        if seen:
            remember(root, seen)


def checked_for(files: Mapping[str, FileRecord]) -> str:
    """Return what stands in the cache for files that were checked together: with this context, and none missing."""
    names = hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest()
    return f"{REVISION}:{files[CONTEXT_FILE].sha256}:{names[:16]}"


def _checked(
    root: Path, episode: str, files: Mapping[str, FileRecord], known: Mapping[str, CheckedFile]
) -> dict[str, CheckedFile]:
    folder = root / EPISODES / episode
    hashed = {name: seen for name, record in files.items() if (seen := _unchanged(root, episode, name, record, known))}
    if len(hashed) == len(files) and CONTEXT_FILE in files:
        purpose = checked_for(files)
        if all(seen.checked_for == purpose for seen in hashed.values()):
            return {}
    missing = sorted({*episode_files(read_context(folder).tables)} - files.keys())
    if missing:
        raise DataError(f"{folder}: the version does not list {missing[0]}; open another version, or collect again")
    stamps = {name: seen.stamp for name, seen in hashed.items()}
    stamps |= check_recorded(folder, {name: record for name, record in files.items() if name not in hashed})
    check_content(folder, episode, tuple(files))
    purpose = checked_for(files)
    return {
        _key(episode, name): CheckedFile(stamp=stamps[name], sha256=record.sha256, checked_for=purpose)
        for name, record in files.items()
    }


def _unchanged(
    root: Path, episode: str, name: str, record: FileRecord, known: Mapping[str, CheckedFile]
) -> CheckedFile | None:
    """Return what is known of a file that has not changed since, and is the one that the version lists."""
    seen = known.get(_key(episode, name))
    if seen is None or seen.sha256 != record.sha256:
        return None
    return seen if seen.stamp == FileStamp.of(root / EPISODES / episode / name, root) else None


def _key(episode: str, name: str) -> str:
    return f"{EPISODES}/{episode}/{name}"
