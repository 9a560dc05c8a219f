"""Copying a version of a dataset to a URL: its version file comes last, so that nobody meets half a version.

Files that are there with their recorded size are not copied again, so that an interrupted copy goes on where it
stopped. Object stores show a file when it is whole; elsewhere an episode is written under another name and renamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from faultset.core.command_line.progress import Progress, StepCounter
from faultset.core.errors import DataError, FaultsetError, PlatformError, UsageError
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.episodes import EPISODES, INCOMPLETE
from faultset.datasets.format.manifests import VERSIONS, FileRecord
from faultset.datasets.format.versions import sorted_versions
from faultset.datasets.remote.file_systems import filesystem, is_url, listed_versions, local_path, version_file

OBJECT_STORES = frozenset({"abfs", "abfss", "adl", "az", "gcs", "gs", "memory", "oci", "oss", "s3", "s3a"})
"""Protocols of places where a file appears when it is whole."""
_READ_ONLY = ("http", "https")
_CARD = "README.md"
_THREADS = 8


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
    threads: int = _THREADS,
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
    if url.partition("://")[0] in _READ_ONLY:
        raise UsageError(f"{url} can only be read; give a URL that can be written to, for instance s3://bucket/data")
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
    target = _Target(url)
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


class _Target:
    """The place that is copied to."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.system, self.root = filesystem(url)
        protocol = self.system.protocol
        self._renames = not OBJECT_STORES & {*([protocol] if isinstance(protocol, str) else protocol)}

    def sizes(self) -> dict[str, int]:
        """Return the size of each file below the folder of episodes, by its path there."""
        folder = f"{self.root}/{EPISODES}"
        with self._errors("listed"):
            self.system.invalidate_cache()
            found = self.system.find(folder, detail=True)
        return {path.partition(f"{folder.lstrip('/')}/")[2]: info["size"] for path, info in found.items()}

    def draft(self, episode: str, sizes: Mapping[str, int], files: Mapping[str, FileRecord]) -> str:
        """Return the name under which the files of an episode are written before it is whole."""
        begun = any(f"{episode}/{name}" in sizes for name in files)
        return f"{episode}{INCOMPLETE}" if self._renames and not begun else episode

    def put(self, source: Path, name: str) -> None:
        """Copy a file to its place below the folder of episodes."""
        path = f"{self.root}/{EPISODES}/{name}"
        with self._errors("written to"):
            if self._renames:
                self.system.makedirs(path.rpartition("/")[0], exist_ok=True)
            self.system.put_file(str(source), path)

    def rename(self, draft: str, episode: str) -> None:
        """Give a whole episode its name."""
        if draft != episode:
            folder = f"{self.root}/{EPISODES}"
            with self._errors("written to"):
                self.system.mv(f"{folder}/{draft}", f"{folder}/{episode}", recursive=True)

    def write_last(self, dataset: Dataset, text: bytes) -> None:
        """Write the card, where the version is the newest, and the version file, which makes it one."""
        card = dataset.root / _CARD
        with self._errors("written to"):
            known = listed_versions(self.url)
            if card.is_file() and sorted_versions([*known, dataset.version])[-1] == dataset.version:
                self.system.put_file(str(card), f"{self.root}/{_CARD}")
            path = f"{self.root}/{VERSIONS}/{dataset.version}.json"
            if self._renames:
                self.system.makedirs(f"{self.root}/{VERSIONS}", exist_ok=True)
                self.system.pipe_file(f"{path}.tmp", text)
                self.system.mv(f"{path}.tmp", path)
            else:
                self.system.pipe_file(path, text)

    @contextmanager
    def _errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except FaultsetError:
            raise
        except Exception as error:
            # each file system raises what its library raises
            raise PlatformError(
                f"{self.url} cannot be {verb} ({type(error).__name__}: {str(error)[:200]}); check the address and who "
                "may write there, then run the same command again to go on"
            ) from error


def _copy_episodes(dataset: Dataset, target: _Target, threads: int, progress: Progress | None) -> tuple[int, int]:
    """Copy the files that are not there; return how many they were, and their bytes."""
    sizes = target.sizes()
    steps = StepCounter(len(dataset.episodes), progress)
    copied = copied_bytes = 0
    with ThreadPoolExecutor(threads) as pool:
        under_way: list[tuple[str, str, list[Future[None]]]] = []
        try:
            for episode, files in dataset.files.items():
                draft = target.draft(episode, sizes, files)
                due = {name: one for name, one in files.items() if sizes.get(f"{draft}/{name}") != one.bytes}
                source = dataset.path(episode)
                futures = [pool.submit(target.put, source / name, f"{draft}/{name}") for name in due]
                under_way.append((draft, episode, futures))
                copied += len(due)
                copied_bytes += sum(record.bytes for record in due.values())
            for draft, episode, futures in under_way:
                for future in futures:
                    future.result()
                target.rename(draft, episode)
                steps.add()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return copied, copied_bytes


def _check_whole(dataset: Dataset, target: _Target) -> None:
    sizes = target.sizes()
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
