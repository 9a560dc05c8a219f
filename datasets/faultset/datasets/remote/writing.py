"""Folders behind URLs that are written to: each file is whole or absent, and so is what is moved."""

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

from faultset.core.errors import DataError, FaultsetError, PlatformError, UsageError
from faultset.core.reading.documents import STRICT, checked, parse_object
from faultset.datasets.format.episodes import EPISODES
from faultset.datasets.format.manifests import FileRecord
from faultset.datasets.format.schemas import EpisodeFile, EpisodeId, Name, is_episode_id
from faultset.datasets.format.versions import summarize_episode
from faultset.datasets.remote.file_systems import fetch_present, filesystem

OBJECT_STORES = frozenset({"abfs", "abfss", "adl", "az", "gcs", "gs", "memory", "oci", "oss", "s3", "s3a"})
"""Protocols of places where a file appears when it is whole."""
THREADS = 8
"""Files that are copied at once."""
_READ_ONLY = ("http", "https")
_TRIES, _PAUSE_S = 3, 0.5


class RemoteFolder:
    """A folder behind a URL that is written to; names are paths below it.

    Parameters
    ----------
    url
        Any URL that fsspec can write to, for instance `s3://bucket/data`.

    Raises
    ------
    UsageError
        Nothing can be written to such a URL.
    PlatformError
        It cannot be opened.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        if url.partition("://")[0] in _READ_ONLY:
            raise UsageError(
                f"{url} can only be read; give a URL that can be written to, for instance s3://bucket/data"
            )
        if "://" in url and not url.partition("://")[2].strip("/"):
            raise UsageError(f"{url} names no place to write to; give one, for instance s3://bucket/data")
        self.system, self.root = filesystem(self.url)
        protocol = self.system.protocol
        names = {*([protocol] if isinstance(protocol, str) else protocol)}
        self.renames = not OBJECT_STORES & names
        """Whether a file can be seen before it is whole, so that what is written gets its name afterwards."""

    def entries(self, folder: str = "") -> list[str]:
        """Return the names of what lies directly in the folder, or in one below it; none where there is no folder."""
        with self.errors("listed"):
            self.system.invalidate_cache()
            try:
                found = self.system.ls(self._path(folder), detail=False)
            except FileNotFoundError:
                return []
        return sorted({str(path).rstrip("/").rpartition("/")[2] for path in found} - {""})

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the size of each file below a folder, by its path there."""
        path = self._path(folder)
        with self.errors("listed"):
            self.system.invalidate_cache()
            found = self.system.find(path, detail=True)
        return {name.partition(f"{path.lstrip('/')}/")[2]: info["size"] for name, info in found.items()}

    def put(self, source: Path, name: str) -> None:
        """Copy a local file; where files can be seen before they are whole, this one can."""
        path = self._path(name)
        with self.errors("written to"):
            self._make_parent(path)
            self.system.put_file(str(source), path)

    def put_all(self, sources: Mapping[str, Path]) -> None:
        """Copy local files, several at once, by the names that they get."""
        with ThreadPoolExecutor(THREADS) as pool:
            for done in [pool.submit(self.put, source, name) for name, source in sources.items()]:
                done.result()

    def write(self, name: str, data: bytes) -> None:
        """Write a file, whole or not at all, in the place of one that is there."""
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
        """Write a file unless one of that name is there; return what is there now, which others may have written.

        Of several who do so at the same moment one succeeds, where the store can write under the condition that
        nothing is there, as S3 can.
        """
        path = self._path(name)
        with self.errors("written to"):
            for left in reversed(range(_TRIES)):
                there = self._read(path)
                if there is not None:
                    return there
                try:
                    if self.renames:
                        self.write(name, data)
                    else:
                        self.system.pipe_file(path, data, mode="create")
                except Exception:
                    # somebody else was quicker, or it was written and only the answer was lost
                    if self._read(path) is None and not left:
                        raise
                    time.sleep(_PAUSE_S)
            there = self._read(path)
            return data if there is None else there

    def move(self, source: str, target: str, names: Iterable[str]) -> None:
        """Move files of one folder to another; doing it again after an interruption, or at the same time, is no harm.

        Parameters
        ----------
        names
            The files, as paths below the folders; those that are not in the source any more are left out.
        """
        there = self.sizes(source)
        with self.errors("written to"), ThreadPoolExecutor(THREADS) as pool:
            wanted = [name for name in names if name in there]
            for done in [pool.submit(self._move, f"{source}/{name}", f"{target}/{name}") for name in wanted]:
                done.result()
        self.remove(source)

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it; what is not there is no error."""
        with self.errors("written to"), suppress(FileNotFoundError):
            self.system.invalidate_cache()
            self.system.rm(self._path(name), recursive=True)

    @contextmanager
    def errors(self, verb: str) -> Iterator[None]:
        """Turn every error into a PlatformError that says what cannot be done."""
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

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}".rstrip("/")

    def _make_parent(self, path: str) -> None:
        if self.renames:
            self.system.makedirs(path.rpartition("/")[0], exist_ok=True)

    def _move(self, source: str, target: str) -> None:
        # another who moves the same file may have removed it meanwhile
        with suppress(FileNotFoundError):
            if self.renames:
                self._make_parent(self._path(target))
                self.system.mv(self._path(source), self._path(target))
            else:
                # the whole source is removed afterwards, with fewer requests
                self.system.cp_file(self._path(source), self._path(target))

    def _read(self, path: str) -> bytes | None:
        self.system.invalidate_cache()
        try:
            return self.system.cat_file(path)
        except FileNotFoundError:
            return None


FINISHED = "finished"
ARRIVING = ".workers"
_TOGETHER = 500


@dataclass(frozen=True, kw_only=True)
class FinishedEpisode:
    """What a dataset behind a URL says of an episode that is there."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    episode: EpisodeId
    """Its id."""
    run: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,140}$")]
    """The folder in which its files came."""
    verdict: Name
    """The verdict of its label."""
    files: Mapping[EpisodeFile, FileRecord]
    """Path in its folder -> record of the file."""

    def to_json(self) -> bytes:
        """Return the content of its file."""
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def from_json(cls, content: bytes, *, origin: str) -> FinishedEpisode:
        """Read the content of its file; raise DataError when it is not one."""
        return checked(parse_object(content, origin), cls, origin)


class FinishedEpisodes:
    """The episodes of a dataset behind a URL that were written there one by one.

    Parameters
    ----------
    url
        Any URL that fsspec can write to.
    """

    def __init__(self, url: str) -> None:
        self.folder = RemoteFolder(url)

    def find(self, episode: str) -> FinishedEpisode | None:
        """Return what is known of an episode; None when it is not there."""
        name = f"{FINISHED}/{episode}.json"
        found = fetch_present(self.folder.url, [name])
        return self._read(name, found[name]) if found else None

    def records(self) -> dict[str, FinishedEpisode]:
        """Return what is known of each episode that is there, by its id."""
        entries = (name.removesuffix(".json") for name in self.folder.entries(FINISHED) if name.endswith(".json"))
        names = [f"{FINISHED}/{episode}.json" for episode in entries if is_episode_id(episode)]
        found: dict[str, FinishedEpisode] = {}
        for first in range(0, len(names), _TOGETHER):
            for name, content in fetch_present(self.folder.url, names[first : first + _TOGETHER]).items():
                record = self._read(name, content)
                found[record.episode] = record
        return found

    def add(self, path: Path, episode: str) -> bool:
        """Copy an episode from a local folder; say False when it is there already, of whatever run.

        Raises
        ------
        DataError
            The local folder is damaged.
        PlatformError
            The place cannot be written to. Nothing is there then that readers see.
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
        # where it is not known whether this has happened, the files stay until the episode is finished
        is_new = self.folder.create(f"{FINISHED}/{episode}.json", content) == content
        if is_new:
            self._settle(record)
        else:
            self.folder.remove(arriving)
        return is_new

    def settle(self, records: Mapping[str, FinishedEpisode]) -> None:
        """Finish moves that were interrupted, and remove what other runs of finished episodes have left.

        What belongs to no finished episode stays: it may be arriving.
        """
        for run in self.folder.entries(ARRIVING):
            record = records.get(run.rpartition("-")[0])
            if record is not None and record.run == run:
                self._settle(record)
            elif record is not None:
                self.folder.remove(f"{ARRIVING}/{run}")

    def check_whole(self, files: Mapping[str, Mapping[str, FileRecord]]) -> None:
        """Raise DataError unless all files of some episodes are there with their recorded size."""
        sizes = self.folder.sizes(EPISODES)
        missing = [
            f"{EPISODES}/{episode}/{name}"
            for episode, records in files.items()
            for name, record in records.items()
            if sizes.get(f"{episode}/{name}") != record.bytes
        ]
        if missing:
            raise DataError(
                f"{len(missing)} files of finished episodes are not whole at {self.folder.url} (first: {missing[0]}); "
                f"restore them, or remove the files of their episodes in {FINISHED}/ to run those again"
            )

    def _read(self, name: str, content: bytes) -> FinishedEpisode:
        record = FinishedEpisode.from_json(content, origin=f"{self.folder.url}/{name}")
        if name != f"{FINISHED}/{record.episode}.json":
            raise DataError(f"{self.folder.url}/{name} is of another episode; remove it to run that one again")
        return record

    def _settle(self, record: FinishedEpisode) -> None:
        self.folder.move(f"{ARRIVING}/{record.run}", f"{EPISODES}/{record.episode}", record.files)
