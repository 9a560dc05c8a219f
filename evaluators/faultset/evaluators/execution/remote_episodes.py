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

from faultset.core.files import replacing
from faultset.core.processes import make_scratch
from faultset.datasets.format.context import CONTEXT_FILE
from faultset.datasets.format.episodes import table_file
from faultset.datasets.remote.file_systems import fetch
from faultset.datasets.validation import check_content

CACHE_BYTES = int(os.environ.get("FAULTSET_FETCHED_BYTES", 4 << 30))
"""Disk that fetched episodes may take on one worker; those in use are never removed."""
FETCHED_BY_ALL = ("metrics", "spans", "logs", "events", "objects")


@dataclass(frozen=True, kw_only=True)
class EpisodeLocation:
    """Where an episode is: a folder that workers can open, or files behind a URL with their checksums."""

    folder: str
    files: Mapping[str, str] = field(default_factory=dict)
    """File of the episode -> SHA-256; empty for a folder."""
    content: str = ""
    """SHA-256 of the checksums of all that methods may read of it; empty where that is not known."""

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
        wanted = [CONTEXT_FILE, *(table_file(table) for table in sorted(tables))]
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
