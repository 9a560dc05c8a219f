"""Episodes of remote datasets: fetched once per worker, checked while they arrive, and removed again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from faultset.core.errors import DataError, PlatformError
from faultset.core.files import replacing
from faultset.datasets.format.context import CONTEXT_FILE
from faultset.datasets.format.episodes import TELEMETRY
from faultset.datasets.validation.episodes import check_content
from faultset.evaluators.execution.scratch import make_scratch

CACHE_BYTES = int(os.environ.get("FAULTSET_FETCHED_BYTES", 4 << 30))
"""Disk that fetched episodes may take on one worker; those in use are never removed."""
FETCHED_BY_ALL = ("metrics", "spans", "logs", "events", "objects")


@dataclass(frozen=True, kw_only=True)
class EpisodeLocation:
    """Where an episode is: a folder that workers can open, or files behind a URL with their checksums."""

    folder: str
    files: Mapping[str, str] = field(default_factory=dict)
    """File of the episode -> SHA-256; empty for a folder."""

    @property
    def remote(self) -> bool:
        """Whether files must be fetched before they can be read."""
        return bool(self.files)


@contextlib.contextmanager
def local_folders(locations: Sequence[EpisodeLocation], needs: frozenset[str]) -> Iterator[tuple[str, ...]]:
    """Yield folders in which the episodes can be read, for as long as the block lasts."""
    if not any(location.remote for location in locations):
        yield tuple(location.folder for location in locations)
        return
    tables = {*FETCHED_BY_ALL, *(("requests",) if "sli" in needs else ())}
    with contextlib.ExitStack() as stack:
        yield tuple(
            stack.enter_context(_fetched_episodes().lend(location, tables)) if location.remote else location.folder
            for location in locations
        )


def filesystem(url: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URL and the path in it; say what is missing where there is none."""
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError, OSError) as error:
        scheme = url.partition("://")[0]
        raise PlatformError(
            f"{url} cannot be opened ({error}); install the fsspec package for {scheme}://, such as s3fs or gcsfs, "
            "and give its credentials in the environment"
        ) from error
    return system, path.rstrip("/")


def fetch(url: str, names: Sequence[str], checksums: Mapping[str, str]) -> dict[str, bytes]:
    """Read files below a URL, several at once, and compare them with their checksums."""
    system, root = filesystem(url)
    paths = {f"{root}/{name}": name for name in names}
    try:
        found = system.cat(list(paths))
    except Exception as error:
        # each file system raises what its library raises
        raise PlatformError(
            f"{url} cannot be read ({type(error).__name__}: {str(error)[:200]}); check the address and who may read it"
        ) from error
    # file systems differ in whether they give a leading slash or the scheme back
    content = {_matching(path, paths): data for path, data in found.items()}
    wrong = [name for name, data in content.items() if hashlib.sha256(data).hexdigest() != checksums[name]]
    if wrong:
        raise DataError(
            f"{len(wrong)} of {len(names)} files below {url} differ from their checksum (first: {min(wrong)}); "
            "restore them, or open another version"
        )
    return content


def _matching(path: str, paths: Mapping[str, str]) -> str:
    if path in paths:
        return paths[path]
    return next(name for known, name in paths.items() if path.endswith(known.lstrip("/")))


class _FetchedEpisodes:
    """Fetched episodes of this process, least recently used ones removed first."""

    def __init__(self) -> None:
        self._root = make_scratch("fetched")
        self._lock = threading.Lock()
        self._busy: dict[str, threading.Lock] = {}
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._users: dict[str, int] = {}

    @contextlib.contextmanager
    def lend(self, location: EpisodeLocation, tables: set[str]) -> Iterator[str]:
        key = hashlib.sha256(f"{location.folder}\0{sorted(location.files.items())}".encode()).hexdigest()[:24]
        with self._lock:
            self._users[key] = self._users.get(key, 0) + 1
            busy = self._busy.setdefault(key, threading.Lock())
        folder = self._root / key / PurePosixPath(location.folder).name
        try:
            with busy:
                self._complete(location, folder, tables, key)
            yield str(folder)
        finally:
            with self._lock:
                self._users[key] -= 1
                self._shrink()

    def _complete(self, location: EpisodeLocation, folder: Path, tables: set[str], key: str) -> None:
        wanted = [CONTEXT_FILE, *(f"{TELEMETRY}/{table}.parquet" for table in sorted(tables))]
        missing = [name for name in wanted if name in location.files and not (folder / name).exists()]
        size = 0
        if missing:
            for name, data in fetch(location.folder, missing, location.files).items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with replacing(path, durable=False) as temporary:
                    temporary.write_bytes(data)
                size += len(data)
            check_content(folder, folder.name, [name for name in wanted if name in location.files])
        with self._lock:
            self._sizes[key] = self._sizes.pop(key, 0) + size

    def _shrink(self) -> None:
        for key in list(self._sizes):
            if sum(self._sizes.values()) <= CACHE_BYTES:
                return
            if not self._users.get(key):
                del self._sizes[key]
                shutil.rmtree(self._root / key, ignore_errors=True)

    def remove(self) -> None:
        shutil.rmtree(self._root, ignore_errors=True)


_made: _FetchedEpisodes | None = None
_making = threading.Lock()


def _fetched_episodes() -> _FetchedEpisodes:
    global _made
    with _making:
        if _made is None:
            import atexit

            _made = _FetchedEpisodes()
            atexit.register(forget_fetched)
        return _made


def forget_fetched() -> None:
    """Remove what this process has fetched."""
    global _made
    with _making:
        store, _made = _made, None
    if store is not None:
        store.remove()
