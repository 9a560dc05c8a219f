"""The cache that evaluations share: private files of limited total size in the user's cache folder."""

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
from faultset.core.regular_files import FileStamp, read_regular
from faultset.evaluators.results.provenance import code_version


def user_cache_folder() -> Path:
    """Return faultset's cache folder: below `XDG_CACHE_HOME`, or `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "faultset"


def read_size_limit(variable: str, default_bytes: int) -> int:
    """Return a cache's size limit in bytes from an environment variable; 0 turns the cache off."""
    text = os.environ.get(variable, str(default_bytes))
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"{variable} must be a number of bytes, got {text!r}; set 0 to turn the cache off")
    return int(text)


@dataclass(frozen=True, kw_only=True)
class UserCache:
    """A folder of cached files; a problem with the folder or a file counts as a cache miss."""

    folder: Path
    suffix: str
    """File name extension of the entries."""
    limit_bytes: int
    """Limit for all files together; the least recently used are removed first."""

    def find(self, key: str, limit_bytes: int) -> bytes | None:
        """Return the content of a key; None if it is missing or larger than the limit."""
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

    def store(self, key: str, content: bytes) -> None:
        """Store content under a key unless it is larger than the cache."""
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
        entries = [(path.stat(), path) for path in self.folder.glob(f"*{self.suffix}")]
        total = sum(state.st_size for state, _ in entries)
        for state, path in sorted(entries, key=lambda entry: (entry[0].st_mtime_ns, entry[1].name)):
            if total <= self.limit_bytes:
                return
            path.unlink(missing_ok=True)
            total -= state.st_size


def _is_private(folder: Path) -> bool:
    """Return whether only this user can write to a folder."""
    state = folder.lstat()
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid() and not state.st_mode & 0o022


BYTES_VARIABLE = "FAULTSET_LABELS_BYTES"
T = TypeVar("T")
_DEFAULT_LIMIT_BYTES = 256 << 20


def labels_folder() -> Path:
    """Return the cache folder of labels: `faultset/labels` in the user's cache folder."""
    return user_cache_folder() / "labels"


def load_or_compute(kind: Any, folders: Iterable[Path], names: Iterable[str], read: Callable[[], T]) -> T:
    """Return a cached result for episodes; compute it if it is missing or a file has changed.

    `kind`: type of the result, which pydantic must be able to serialise to JSON.
    `folders`: folders of the episodes.
    `names`: files in each folder that the result depends on.
    `read`: computes the result.
    """
    adapter: TypeAdapter[T] = TypeAdapter(kind)
    limit_bytes = read_size_limit(BYTES_VARIABLE, _DEFAULT_LIMIT_BYTES)
    cache = UserCache(folder=labels_folder(), suffix=".json", limit_bytes=limit_bytes)
    key = _build_key(str(kind), folders, tuple(names)) if limit_bytes else None
    content = None if key is None else cache.find(key, limit_bytes)
    if content is not None:
        try:
            return adapter.validate_json(content)
        except ValidationError:
            pass  # damaged; recompute it
    result = read()
    if key is not None:
        cache.store(key, adapter.dump_json(result))
    return result


def _build_key(kind: str, folders: Iterable[Path], names: tuple[str, ...]) -> str | None:
    """Hash everything a result depends on; None if a file is missing or not a regular file."""
    try:
        stamps = [
            (str(folder), name, *astuple(FileStamp.of(folder / name, folder))) for folder in folders for name in names
        ]
    except DataError:
        return None
    text = json.dumps([kind, code_version(), stamps], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
