"""Files in the user's folder for caches that one evaluation leaves for the next: private, of a limited size."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from faultset.core.errors import DataError, UsageError
from faultset.core.files import replacing
from faultset.core.reading.regular_files import read_regular


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
