"""Copying a version of a dataset to a URL: its version file comes last, so that nobody meets half a version.

Files that are there with their recorded size are not copied again, so that an interrupted copy goes on where it
stopped. Object stores show a file when it is whole; elsewhere an episode is written under another name and renamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from faultset.core.command_line.progress import Progress, StepCounter
from faultset.core.errors import DataError, PlatformError, UsageError
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.cards import CARD
from faultset.datasets.format.episodes import EPISODES, INCOMPLETE
from faultset.datasets.format.manifests import VERSIONS, FileRecord
from faultset.datasets.format.versions import sorted_versions
from faultset.datasets.remote.file_systems import is_url, listed_versions, local_path, version_file
from faultset.datasets.remote.writing import THREADS, RemoteFolder


@dataclass(frozen=True, kw_only=True)
class PublishResult:
    """What a copy of a version to a URL has done."""

    url: str
    """Where it is now."""
    version: str
    """Name of the version."""
    is_new: bool
    """Whether the version was not there before."""
    files: int
    """How many files of episodes the version has."""
    copied: int
    """How many of them were not there."""
    copied_bytes: int
    """Size of those that were copied."""


def publish_dataset(
    root: Path | str,
    url: str,
    *,
    version: str | None = None,
    threads: int = THREADS,
    progress: Progress | None = None,
) -> PublishResult:
    """Copy a version of a dataset to a URL, or go on with a copy that was interrupted.

    Parameters
    ----------
    root
        Dataset folder.
    url
        Where to: any URL that fsspec can write to, for instance `s3://bucket/data`, or a folder. Other versions that
        are there stay, and share the episodes that they have in common.
    version
        The newest by default.
    threads
        Files that are copied at once.
    progress
        Told how many episodes are there, and of how many.

    Raises
    ------
    UsageError
        Nothing can be written to such a URL, or it is the dataset's own folder.
    DataError
        The dataset is damaged, or the URL has another version of that name.
    PlatformError
        The place cannot be listed or written to; what was copied stays, and the same call goes on.
    """
    url = url.rstrip("/")
    target = _Target(url)
    dataset = open_dataset(root, version)
    if not is_url(url) and local_path(url).resolve() == dataset.root.resolve():
        raise UsageError(f"{url} is the dataset's own folder; give another place")
    dataset.check_files()
    text = (dataset.root / VERSIONS / f"{dataset.version}.json").read_bytes()
    there = version_file(url, dataset.version)
    if there is not None and there != text:
        raise DataError(
            f"{url} has another version {dataset.version}; versions are never changed, so give another place, or "
            "publish a version with another name"
        )
    copied, copied_bytes = _copy_episodes(dataset, target, threads, progress)
    if there is None:
        _check_whole(dataset, target)
        target.write_last(dataset, text)
    return PublishResult(
        url=url,
        version=dataset.version,
        is_new=there is None,
        files=sum(map(len, dataset.files.values())),
        copied=copied,
        copied_bytes=copied_bytes,
    )


class _Target(RemoteFolder):
    """The place that is copied to."""

    def draft(self, episode: str, sizes: Mapping[str, int], files: Mapping[str, FileRecord]) -> str:
        """Return the name under which the files of an episode are written before it is whole."""
        begun = any(f"{episode}/{name}" in sizes for name in files)
        return f"{episode}{INCOMPLETE}" if self.renames and not begun else episode

    def rename(self, draft: str, episode: str) -> None:
        """Give a whole episode its name."""
        folder = f"{self.root}/{EPISODES}"
        with self.errors("written to"):
            self.system.mv(f"{folder}/{draft}", f"{folder}/{episode}", recursive=True)

    def write_last(self, dataset: Dataset, text: bytes) -> None:
        """Write the card, where the version is the newest, and the version file, which makes it one."""
        card = dataset.root / CARD
        known = listed_versions(self.url)
        if card.is_file() and sorted_versions([*known, dataset.version])[-1] == dataset.version:
            self.put(card, CARD)
        self.write(f"{VERSIONS}/{dataset.version}.json", text)


def _copy_episodes(dataset: Dataset, target: _Target, threads: int, progress: Progress | None) -> tuple[int, int]:
    """Copy the files that are not there; return how many they were, and their bytes."""
    sizes = target.sizes(EPISODES)
    steps = StepCounter(len(dataset.episodes), progress)
    copied = copied_bytes = 0
    with ThreadPoolExecutor(threads) as pool:
        under_way: list[tuple[str, str, list[Future[None]]]] = []
        try:
            for episode, files in dataset.files.items():
                draft = target.draft(episode, sizes, files)
                due = {name: one for name, one in files.items() if sizes.get(f"{draft}/{name}") != one.bytes}
                source = dataset.path(episode)
                futures = [pool.submit(target.put, source / name, f"{EPISODES}/{draft}/{name}") for name in due]
                under_way.append((draft, episode, futures))
                copied += len(due)
                copied_bytes += sum(record.bytes for record in due.values())
            for draft, episode, futures in under_way:
                for future in futures:
                    future.result()
                if draft != episode:
                    target.rename(draft, episode)
                steps.add()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return copied, copied_bytes


def _check_whole(dataset: Dataset, target: _Target) -> None:
    sizes = target.sizes(EPISODES)
    missing = [
        f"{EPISODES}/{episode}/{name}"
        for episode, files in dataset.files.items()
        for name, record in files.items()
        if sizes.get(f"{episode}/{name}") != record.bytes
    ]
    if missing:
        raise PlatformError(
            f"{len(missing)} files are not whole at {target.url} after they were copied (first: {missing[0]}); run the "
            "same command again to go on"
        )
