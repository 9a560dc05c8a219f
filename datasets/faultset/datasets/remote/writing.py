"""Write files below a URL, and add finished episodes to a dataset there."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import ConfigDict, StringConstraints

from faultset.core.documents import STRICT, check_type, parse_object
from faultset.core.errors import DataError, FaultsetError, PlatformError, UsageError
from faultset.datasets.format.episodes import EPISODES
from faultset.datasets.format.schemas import EpisodeFile, EpisodeId, Name, is_episode_id
from faultset.datasets.format.version_files import FileRecord
from faultset.datasets.format.versions import summarize_episode
from faultset.datasets.remote.file_systems import fetch_present, filesystem

OBJECT_STORES = frozenset({"abfs", "abfss", "adl", "az", "gcs", "gs", "memory", "oci", "oss", "s3", "s3a"})
"""Protocols of stores that show only complete files."""
THREADS = 8
"""Maximum number of concurrent copies."""
_READ_ONLY = ("http", "https")
_MAX_TRIES, _PAUSE_S = 3, 0.5


class RemoteFolder:
    """A writable folder at a URL; names are paths below it.

    Parameters
    ----------
    url
        Any URL that fsspec can write to, for instance `s3://bucket/data`.

    Raises
    ------
    UsageError
        The URL is read-only or has no path.
    PlatformError
        The URL cannot be opened.
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

    def incomplete_files(self, units: Mapping[str, Mapping[str, FileRecord]]) -> list[str]:
        """Return the files of episodes and recordings that are missing or differ from their recorded size.

        Parameters
        ----------
        units
            Folder of an episode or recording in the dataset -> path of a file in it -> its record.
        """
        folders = {unit.partition("/")[0] for unit in units}
        sizes = {f"{folder}/{name}": size for folder in folders for name, size in self.sizes(folder).items()}
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
        """Move files from one folder to another; may be repeated or run concurrently.

        Parameters
        ----------
        names
            Paths of the files below both folders; files that the source folder lacks are ignored.
        """
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
                f"{self.url} cannot be {verb} ({type(error).__name__}: {str(error)[:200]}); check the address and its "
                "permissions, then run the same command again to resume"
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
    """The finished episodes of a dataset at a URL, to which workers add one episode at a time.

    Parameters
    ----------
    url
        Any URL that fsspec can write to.
    """

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

        Raises
        ------
        DataError
            The local folder is damaged.
        PlatformError
            The URL cannot be written to; readers do not see the episode.
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
