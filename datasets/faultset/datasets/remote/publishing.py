"""Publish a version of a dataset at a URL; its version file is written last, so that readers see only whole versions.

Files that exist with the recorded size are not copied again, so an interrupted copy resumes. Object stores show only
complete files. On other file systems, an episode is written under a temporary name and renamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from faultset.core.errors import DataError, PlatformError, UsageError
from faultset.core.output import Progress, StepCounter
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.cards import CARD
from faultset.datasets.format.episodes import EPISODES, INCOMPLETE
from faultset.datasets.format.recordings import RECORDINGS
from faultset.datasets.format.version_files import VERSIONS, FileRecord
from faultset.datasets.format.versions import sorted_versions
from faultset.datasets.remote.file_systems import fetch_version_file, is_url, list_existing_versions, local_path
from faultset.datasets.remote.writing import THREADS, RemoteFolder


@dataclass(frozen=True, kw_only=True)
class PublishResult:
    """Result of publishing a version."""

    url: str
    """URL of the dataset."""
    version: str
    """Name of the version."""
    is_new: bool
    """Whether the version is new at the URL."""
    files: int
    """Number of files of the version's episodes and recordings."""
    copied: int
    """Number of copied files."""
    copied_bytes: int
    """Size of the copied files."""


def publish_dataset(
    root: Path | str,
    url: str,
    *,
    version: str | None = None,
    threads: int = THREADS,
    progress: Progress | None = None,
) -> PublishResult:
    """Copy a version of a dataset to a URL, or resume an interrupted copy.

    Parameters
    ----------
    root
        Dataset folder.
    url
        Target: a folder, or any URL that fsspec can write to, for instance `s3://bucket/data`. Existing versions are
        kept; an episode that several versions contain is stored once.
    version
        Name of the version; the newest by default.
    threads
        Maximum number of concurrent copies.
    progress
        Called with the number of complete episodes and the total.

    Raises
    ------
    UsageError
        The URL is read-only, or is the dataset's folder.
    DataError
        The dataset is damaged, or the URL has a different version of that name.
    PlatformError
        The URL cannot be listed or written to; copied files stay, and the same call resumes.
    """
    url = url.rstrip("/")
    target = _Target(url)
    dataset = open_dataset(root, version)
    if not is_url(url) and local_path(url).resolve() == dataset.root.resolve():
        raise UsageError(f"{url} is the dataset's folder; give a different folder or URL")
    dataset.check_files()
    text = (dataset.root / VERSIONS / f"{dataset.version}.json").read_bytes()
    published = fetch_version_file(url, dataset.version)
    _check_same_version(url, dataset.version, published, text)
    copied, copied_bytes = _copy_episodes(dataset, target, threads, progress)
    if published is None:
        _check_complete(dataset, target)
        target.write_last(dataset, text)
    files = len(dataset.version_file.paths())
    sizes = {"files": files, "copied": copied, "copied_bytes": copied_bytes}
    return PublishResult(url=url, version=dataset.version, is_new=published is None, **sizes)


def _check_same_version(url: str, version: str, published: bytes | None, text: bytes) -> None:
    if published not in (None, text):
        raise DataError(
            f"{url} has a different version {version}, and versions never change; give another URL, or "
            "publish a version with another name"
        )


class _Target(RemoteFolder):
    """The target of a copy."""

    def draft(self, unit: str, sizes: Mapping[str, int], files: Mapping[str, FileRecord]) -> str:
        """Return the folder to write an episode or recording to.

        A new episode has a temporary name until it is complete. Recordings keep their name, because they may grow.
        """
        exists = any(f"{unit}/{name}" in sizes for name in files)
        is_drafted = self.renames and not exists and unit.startswith(f"{EPISODES}/")
        return f"{unit}{INCOMPLETE}" if is_drafted else unit

    def rename(self, draft: str, unit: str) -> None:
        """Rename a complete episode from its temporary to its final name."""
        with self.errors("written to"):
            self.system.mv(f"{self.root}/{draft}", f"{self.root}/{unit}", recursive=True)

    def write_last(self, dataset: Dataset, text: bytes) -> None:
        """Write the version file, after the card if the version is the newest."""
        card = dataset.root / CARD
        versions = list_existing_versions(self.url)
        if card.is_file() and sorted_versions([*versions, dataset.version])[-1] == dataset.version:
            self.put(card, CARD)
        self.write(f"{VERSIONS}/{dataset.version}.json", text)


def _copy_episodes(dataset: Dataset, target: _Target, threads: int, progress: Progress | None) -> tuple[int, int]:
    """Copy the missing files; return their number and size."""
    sizes = {
        f"{folder}/{name}": size for folder in (EPISODES, RECORDINGS) for name, size in target.sizes(folder).items()
    }
    units = dataset.version_file.units()
    steps = StepCounter(len(units), progress)
    copied = copied_bytes = 0
    with ThreadPoolExecutor(threads) as pool:
        running: list[tuple[str, str, list[Future[None]]]] = []
        try:
            for unit, files in units.items():
                draft = target.draft(unit, sizes, files)
                missing = {name: file for name, file in files.items() if sizes.get(f"{draft}/{name}") != file.bytes}
                source = dataset.root / unit
                futures = [pool.submit(target.put, source / name, f"{draft}/{name}") for name in missing]
                running.append((draft, unit, futures))
                copied += len(missing)
                copied_bytes += sum(record.bytes for record in missing.values())
            for draft, unit, futures in running:
                for future in futures:
                    future.result()
                if draft != unit:
                    target.rename(draft, unit)
                steps.add()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return copied, copied_bytes


def _check_complete(dataset: Dataset, target: _Target) -> None:
    missing = target.incomplete_files(dataset.version_file.units())
    if missing:
        raise PlatformError(
            f"{len(missing)} copied files at {target.url} are incomplete (first: {missing[0]}); run the same command "
            "again to resume"
        )
