"""Write files below a URL: publish dataset versions, and add finished episodes to a dataset there."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import ConfigDict, StringConstraints

from faultset.core.documents import STRICT, check_type, parse_object
from faultset.core.errors import DataError, FaultsetError, PlatformError, UsageError
from faultset.core.output import Progress, StepCounter
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.cards import CARD
from faultset.datasets.format.episodes import EPISODES, INCOMPLETE
from faultset.datasets.format.recordings import RECORDINGS
from faultset.datasets.format.schemas import EpisodeFile, EpisodeId, Name, is_episode_id
from faultset.datasets.format.version_files import VERSIONS, FileRecord
from faultset.datasets.format.versions import sorted_versions, summarize_episode
from faultset.datasets.remote.file_systems import (
    describe_error,
    fetch_present,
    fetch_version_file,
    filesystem,
    is_url,
    list_existing_versions,
    local_path,
)

OBJECT_STORES = frozenset({"abfs", "abfss", "adl", "az", "gcs", "gs", "memory", "oci", "oss", "s3", "s3a"})
"""Protocols of stores that show only complete files."""
THREADS = 8
"""Maximum number of concurrent copies."""
_READ_ONLY = ("http", "https")
_MAX_TRIES, _PAUSE_S = 3, 0.5


class RemoteFolder:
    """A writable folder at a URL; names are paths below it.

    Raise UsageError for a URL that is read-only or has no path.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        if url.partition("://")[0] in _READ_ONLY:
            raise UsageError(f"{url} is read-only; give a URL that can be written to, for instance s3://bucket/data")
        if "://" in url and not url.partition("://")[2].strip("/"):
            raise UsageError(f"{url} needs a bucket or folder; give one, for instance s3://bucket/data")
        self.system, self.root = filesystem(self.url)
        protocol = self.system.protocol
        names = {*([protocol] if isinstance(protocol, str) else protocol)}
        self.renames = not OBJECT_STORES & names
        """Whether files are visible while incomplete, so that they must be written under a temporary name."""

    def entries(self, folder: str = "") -> list[str]:
        """Return the names directly below a folder; empty if it does not exist."""
        with self.errors("listed"):
            self.system.invalidate_cache()
            try:
                paths = self.system.ls(self._path(folder), detail=False)
            except FileNotFoundError:
                return []
        return sorted({str(path).rstrip("/").rpartition("/")[2] for path in paths} - {""})

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the size of each file below a folder, by its relative path."""
        path = self._path(folder)
        with self.errors("listed"):
            self.system.invalidate_cache()
            files = self.system.find(path, detail=True)
        return {name.partition(f"{path.lstrip('/')}/")[2]: info["size"] for name, info in files.items()}

    def sizes_below(self, *folders: str) -> dict[str, int]:
        """Return the size of each file below some folders, by its path."""
        return {f"{folder}/{name}": size for folder in folders for name, size in self.sizes(folder).items()}

    def incomplete_files(self, units: Mapping[str, Mapping[str, FileRecord]]) -> list[str]:
        """Return the files of episodes and recordings that are missing or differ from their recorded size.

        `units` has the record of each file by its path in the folder of its episode or recording.
        """
        sizes = self.sizes_below(*{unit.partition("/")[0] for unit in units})
        return [
            f"{unit}/{name}"
            for unit, records in units.items()
            for name, record in records.items()
            if sizes.get(f"{unit}/{name}") != record.bytes
        ]

    def put(self, source: Path, name: str) -> None:
        """Copy a local file; if `renames` is true, it is visible while incomplete."""
        path = self._path(name)
        with self.errors("written to"):
            self._make_parent(path)
            self.system.put_file(str(source), path)

    def put_all(self, sources: Mapping[str, Path]) -> None:
        """Copy local files concurrently to the given names."""
        with ThreadPoolExecutor(THREADS) as pool:
            for future in [pool.submit(self.put, source, name) for name, source in sources.items()]:
                future.result()

    def write(self, name: str, data: bytes) -> None:
        """Write or replace a file atomically."""
        path = self._path(name)
        with self.errors("written to"):
            if not self.renames:
                self.system.pipe_file(path, data)
                return
            self._make_parent(path)
            new = f"{path}.{secrets.token_hex(4)}.tmp"
            self.system.pipe_file(new, data)
            self.system.mv(new, path)

    def create(self, name: str, data: bytes) -> bytes:
        """Write a file unless it exists; return its content, which another process may have written.

        In stores with conditional writes, such as S3, only one of several concurrent calls writes its data.
        """
        path = self._path(name)
        with self.errors("written to"):
            for remaining in reversed(range(_MAX_TRIES)):
                existing = self._read(path)
                if existing is not None:
                    return existing
                try:
                    if self.renames:
                        self.write(name, data)
                    else:
                        self.system.pipe_file(path, data, mode="create")
                except Exception:
                    # Another process was faster, or only the reply was lost.
                    if self._read(path) is None and not remaining:
                        raise
                    time.sleep(_PAUSE_S)
            existing = self._read(path)
            return data if existing is None else existing

    def move(self, source: str, target: str, names: Iterable[str]) -> None:
        """Move files from one folder to another, if they exist; may be repeated or run concurrently."""
        existing = self.sizes(source)
        with self.errors("written to"), ThreadPoolExecutor(THREADS) as pool:
            moves = [(f"{source}/{name}", f"{target}/{name}") for name in names if name in existing]
            for future in [pool.submit(self._move, *move) for move in moves]:
                future.result()
        self.remove(source)

    def remove(self, name: str) -> None:
        """Remove a file or a folder if it exists."""
        with self.errors("written to"), suppress(FileNotFoundError):
            self.system.invalidate_cache()
            self.system.rm(self._path(name), recursive=True)

    @contextmanager
    def errors(self, verb: str) -> Iterator[None]:
        """Translate errors into a PlatformError that names the failed operation."""
        try:
            yield
        except FaultsetError:
            raise
        except Exception as error:
            # File systems raise the errors of their libraries.
            raise PlatformError(
                f"{self.url} cannot be {verb} ({describe_error(error)}); check the address and its permissions, then "
                "run the same command again to resume"
            ) from error

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}".rstrip("/")

    def _make_parent(self, path: str) -> None:
        if self.renames:
            self.system.makedirs(path.rpartition("/")[0], exist_ok=True)

    def _move(self, source: str, target: str) -> None:
        # A concurrent move may have removed the file.
        with suppress(FileNotFoundError):
            if self.renames:
                self._make_parent(self._path(target))
                self.system.mv(self._path(source), self._path(target))
            else:
                # `move` removes the whole source folder, which takes fewer requests.
                self.system.cp_file(self._path(source), self._path(target))

    def _read(self, path: str) -> bytes | None:
        self.system.invalidate_cache()
        try:
            return self.system.cat_file(path)
        except FileNotFoundError:
            return None


FINISHED = "finished"
ARRIVING = ".workers"
_BATCH_SIZE = 500


@dataclass(frozen=True, kw_only=True)
class FinishedEpisode:
    """Record of a finished episode at a URL."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    episode: EpisodeId
    """Id of the episode."""
    run: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,140}$")]
    """Temporary folder of its files."""
    verdict: Name
    """Verdict of its label."""
    files: Mapping[EpisodeFile, FileRecord]
    """Record of each file by its path in the episode."""

    def to_json(self) -> bytes:
        """Return the record as JSON."""
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def from_json(cls, content: bytes, *, origin: str) -> FinishedEpisode:
        """Parse a record; raise DataError if it is invalid."""
        return check_type(parse_object(content, origin), cls, origin)


class FinishedEpisodes:
    """The finished episodes of a dataset at a URL, to which workers add one episode at a time."""

    def __init__(self, url: str) -> None:
        self.folder = RemoteFolder(url)

    def find(self, episode: str) -> FinishedEpisode | None:
        """Return the record of an episode, or None if it is not finished."""
        name = f"{FINISHED}/{episode}.json"
        content = fetch_present(self.folder.url, [name])
        return self._read(name, content[name]) if content else None

    def records(self) -> dict[str, FinishedEpisode]:
        """Return the records of all finished episodes by id."""
        entries = (name.removesuffix(".json") for name in self.folder.entries(FINISHED) if name.endswith(".json"))
        names = [f"{FINISHED}/{episode}.json" for episode in entries if is_episode_id(episode)]
        records: dict[str, FinishedEpisode] = {}
        for first in range(0, len(names), _BATCH_SIZE):
            for name, content in fetch_present(self.folder.url, names[first : first + _BATCH_SIZE]).items():
                record = self._read(name, content)
                records[record.episode] = record
        return records

    def add(self, path: Path, episode: str) -> bool:
        """Copy an episode from a local folder; return False if it is already finished.

        If the URL cannot be written to, readers do not see the episode.
        """
        summary = summarize_episode(path)
        record = FinishedEpisode(
            episode=episode,
            run=f"{episode}-{secrets.token_hex(8)}",
            verdict=summary.label.verdict,
            files=summary.files,
        )
        arriving, content = f"{ARRIVING}/{record.run}", record.to_json()
        try:
            self.folder.put_all({f"{arriving}/{name}": path / name for name in record.files})
        except BaseException:
            with suppress(FaultsetError):
                self.folder.remove(arriving)
            raise
        # If this fails, the record may exist, so keep the files until `settle` is called.
        is_new = self.folder.create(f"{FINISHED}/{episode}.json", content) == content
        if is_new:
            self._settle(record)
        else:
            self.folder.remove(arriving)
        return is_new

    def settle(self, records: Mapping[str, FinishedEpisode]) -> None:
        """Finish interrupted moves and remove files of superseded runs.

        Files of unfinished episodes are kept, because they may still be arriving.
        """
        for run in self.folder.entries(ARRIVING):
            record = records.get(run.rpartition("-")[0])
            if record is not None and record.run == run:
                self._settle(record)
            elif record is not None:
                self.folder.remove(f"{ARRIVING}/{run}")

    def check_complete(self, files: Mapping[str, Mapping[str, FileRecord]]) -> None:
        """Raise DataError unless all files of the episodes exist with their recorded size."""
        missing = self.folder.incomplete_files({f"{EPISODES}/{episode}": records for episode, records in files.items()})
        if missing:
            raise DataError(
                f"{len(missing)} files of finished episodes at {self.folder.url} are incomplete (first: {missing[0]}); "
                f"restore them, or remove the records of their episodes in {FINISHED}/ to run these again"
            )

    def _read(self, name: str, content: bytes) -> FinishedEpisode:
        record = FinishedEpisode.from_json(content, origin=f"{self.folder.url}/{name}")
        if name != f"{FINISHED}/{record.episode}.json":
            raise DataError(
                f"{self.folder.url}/{name} is the record of {record.episode}; remove it to run its episode again"
            )
        return record

    def _settle(self, record: FinishedEpisode) -> None:
        self.folder.move(f"{ARRIVING}/{record.run}", f"{EPISODES}/{record.episode}", record.files)


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
    if published not in (None, text):
        raise DataError(
            f"{url} has a different version {dataset.version}, and versions never change; give another URL, or "
            "publish a version with another name"
        )
    copied, copied_bytes = _copy_episodes(dataset, target, threads, progress)
    if published is None:
        missing = target.incomplete_files(dataset.version_file.units())
        if missing:
            raise PlatformError(
                f"{len(missing)} copied files at {url} are incomplete (first: {missing[0]}); run the same command "
                "again to resume"
            )
        target.write_last(dataset, text)
    return PublishResult(
        url=url,
        version=dataset.version,
        is_new=published is None,
        files=len(dataset.version_file.paths()),
        copied=copied,
        copied_bytes=copied_bytes,
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
    sizes = target.sizes_below(EPISODES, RECORDINGS)
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
