"""Checking the files of a version once, however often it is used."""

from __future__ import annotations

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
    """Return what stands in the cache for files that were checked together with their context."""
    return f"{REVISION}:{files[CONTEXT_FILE].sha256}"


def _checked(
    root: Path, episode: str, files: Mapping[str, FileRecord], known: Mapping[str, CheckedFile]
) -> dict[str, CheckedFile]:
    folder = root / EPISODES / episode
    missing = sorted({*episode_files(read_context(folder).tables)} - files.keys())
    if missing:
        raise DataError(f"{folder}: the version does not list {missing[0]}; open another version, or collect again")
    purpose = checked_for(files)
    keys = {name: f"{EPISODES}/{episode}/{name}" for name in files}
    hashed = {name: known[key] for name, key in keys.items() if _is_unchanged(root, key, files[name], known)}
    if len(hashed) == len(files) and all(seen.checked_for == purpose for seen in hashed.values()):
        return {}
    stamps = {name: seen.stamp for name, seen in hashed.items()}
    stamps |= check_recorded(folder, {name: record for name, record in files.items() if name not in hashed})
    check_content(folder, episode, tuple(files))
    return {
        keys[name]: CheckedFile(stamp=stamps[name], sha256=record.sha256, checked_for=purpose)
        for name, record in files.items()
    }


def _is_unchanged(root: Path, key: str, record: FileRecord, known: Mapping[str, CheckedFile]) -> bool:
    seen = known.get(key)
    return seen is not None and seen.sha256 == record.sha256 and seen.stamp == FileStamp.of(root / key, root)
