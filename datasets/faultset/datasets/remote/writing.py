"""Folders behind URLs that are written to: each file is whole or absent, and so is what is moved."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from faultset.core.errors import FaultsetError, PlatformError, UsageError
from faultset.datasets.remote.file_systems import filesystem

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
