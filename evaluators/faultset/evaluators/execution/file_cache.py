"""Files that one evaluation leaves for the next in the user's folder for caches: private, of a limited size."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from faultset.core.errors import DataError, UsageError
from faultset.core.files import replacing
from faultset.core.reading.regular_files import FileStamp, read_regular
from faultset.evaluators.results.provenance import code_version


def user_cache_folder() -> Path:
    """Return the folder for what faultset keeps of this user: below `XDG_CACHE_HOME`, or `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "faultset"


def size_limit_from(variable: str, default_bytes: int) -> int:
    """Return how many bytes kept files may take, from an environment variable; 0 where none are to be kept.

    Raises
    ------
    UsageError
        The variable is set to something else than a number of bytes.
    """
    text = os.environ.get(variable, str(default_bytes))
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"{variable} is {text!r}, wanted is a number of bytes; give 0 to keep nothing")
    return int(text)


@dataclass(frozen=True, kw_only=True)
class UserCache:
    """A folder of kept files; whatever is wrong with it or with a file in it means that nothing was kept."""

    folder: Path
    suffix: str
    """Of the names of files that belong here."""
    limit_bytes: int
    """What all files may take together; those that were not used for longest are removed first."""

    def find(self, key: str, limit_bytes: int) -> bytes | None:
        """Return the content that was kept under a key; None where there is none of at most so many bytes."""
        path = self._path(key)
        try:
            if not self.limit_bytes or not _is_private(self.folder):
                return None
            content = read_regular(path, limit_bytes=limit_bytes)
        except (DataError, OSError):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return content

    def keep(self, key: str, content: bytes) -> None:
        """Keep content under a key; what finds no room is not kept."""
        if not self.limit_bytes or len(content) > self.limit_bytes:
            return
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_private(self.folder):
                return
            with replacing(self._path(key), durable=False) as temporary:
                temporary.write_bytes(content)
                temporary.chmod(0o600)
            self._shrink()

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{self.suffix}"

    def _shrink(self) -> None:
        kept = [(path.stat(), path) for path in self.folder.glob(f"*{self.suffix}")]
        total = sum(state.st_size for state, _ in kept)
        for state, path in sorted(kept, key=lambda one: (one[0].st_mtime_ns, one[1].name)):
            if total <= self.limit_bytes:
                return
            path.unlink(missing_ok=True)
            total -= state.st_size


def _is_private(folder: Path) -> bool:
    """Whether nobody but this user can have put files into a folder."""
    state = folder.lstat()
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid() and not state.st_mode & 0o022


BYTES_VARIABLE = "FAULTSET_LABELS_BYTES"
T = TypeVar("T")
_LIMIT_BYTES = 256 << 20


def labels_folder() -> Path:
    """Return where it is kept: `faultset/labels` in the user's folder for caches."""
    return user_cache_folder() / "labels"


def cached_or_read(kind: Any, folders: Iterable[Path], names: Iterable[str], read: Callable[[], T]) -> T:
    """Return what was kept of some episodes; read and keep it where there is nothing, or a file has changed.

    Parameters
    ----------
    kind
        Type of the result, as pydantic can write and read it in JSON.
    folders
        Folders of the episodes.
    names
        Files below each of them that the result depends on.
    read
        Makes the result.
    """
    adapter: TypeAdapter[T] = TypeAdapter(kind)
    limit_bytes = size_limit_from(BYTES_VARIABLE, _LIMIT_BYTES)
    kept = UserCache(folder=labels_folder(), suffix=".json", limit_bytes=limit_bytes)
    key = _key(str(kind), folders, tuple(names)) if limit_bytes else None
    content = None if key is None else kept.find(key, limit_bytes)
    if content is not None:
        try:
            return adapter.validate_json(content)
        except ValidationError:
            pass  # somebody else's, or damaged: made again
    found = read()
    if key is not None:
        kept.keep(key, adapter.dump_json(found))
    return found


def _key(kind: str, folders: Iterable[Path], names: tuple[str, ...]) -> str | None:
    """Hash everything that a result can depend on; None where a file is missing or no regular one."""
    try:
        stamps = [
            (str(folder), name, *astuple(FileStamp.of(folder / name, folder))) for folder in folders for name in names
        ]
    except DataError:
        return None
    text = json.dumps([kind, code_version(), stamps], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
