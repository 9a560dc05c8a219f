"""Reading files that somebody else has made: regular files of a limited size, and no links."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from faultset.core.errors import DataError, FaultsetError
from faultset.core.printable import printable

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def regular_stat(
    path: Path, *, below: Path | None = None, limit_bytes: int | None = None, error: type[FaultsetError] = DataError
) -> os.stat_result:
    """Return the state of a file that may be read.

    Parameters
    ----------
    path
        The file.
    below
        Folder above it, from which on no folder may be a link either; its own folder by default.
    limit_bytes
        The largest size that makes sense for it.
    error
        Class of the error.

    Raises
    ------
    FaultsetError
        The file is missing, no regular file, reached through a link, too large, or may not be read.
    """
    try:
        name = str(path)
        name.encode()
        for folder in _folders_between(name, str(path.parent if below is None else below)):
            state = os.lstat(folder)
            if not stat.S_ISDIR(state.st_mode):
                raise error(f"{printable(folder)} is {_kind(state)}, wanted is a folder; put the folder itself there")
        state = os.lstat(name)
    except FileNotFoundError:
        raise error(f"{printable(path)} is missing; restore it") from None
    except UnicodeEncodeError:
        raise error(f"{printable(path)} has a name that is not UTF-8 text; rename it") from None
    except (OSError, ValueError) as problem:
        raise unreadable(path, problem, error) from problem
    if not stat.S_ISREG(state.st_mode):
        raise error(f"{printable(path)} is {_kind(state)}, wanted is a regular file; put the file itself there")
    if limit_bytes is not None and state.st_size > limit_bytes:
        raise error(
            f"{printable(path)} has {state.st_size:,} bytes, wanted are at most {limit_bytes:,}; restore the file"
        )
    return state


def _folders_between(name: str, top: str) -> Iterator[str]:
    """Yield the folders below `top` that a path leads through; as texts, for a dataset has many files."""
    above = "" if top == "." else top.rstrip(os.sep) + os.sep
    if not name.startswith(above):
        raise ValueError(f"{name} is not below {top}")
    end = name.find(os.sep, len(above))
    while end >= 0:
        yield name[:end]
        end = name.find(os.sep, end + 1)


@dataclass(frozen=True)
class FileStamp:
    """What changes when a file is changed or replaced; no archive or copy carries it over."""

    bytes: int
    modified_ns: int
    changed_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path, below: Path) -> FileStamp:
        """Return the stamp of a regular file below a folder; raise DataError for anything else."""
        state = regular_stat(path, below=below)
        return cls(state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino)


def read_regular(
    path: Path, *, limit_bytes: int, below: Path | None = None, error: type[FaultsetError] = DataError
) -> bytes:
    """Return the content of a file; see `regular_stat` for what is refused."""
    regular_stat(path, below=below, limit_bytes=limit_bytes, error=error)
    try:
        # O_NONBLOCK: what became a pipe meanwhile must not block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            # as much memory is reserved as is asked for
            size = min(os.fstat(descriptor).st_size, limit_bytes)
            content = file.read(size + 1)
    except OSError as problem:
        raise unreadable(path, problem, error) from problem
    if len(content) > size:
        raise error(f"{printable(path)} grew while it was read; run the same command again when nothing writes to it")
    return content


def unreadable(path: Path, problem: Exception, error: type[FaultsetError] = DataError) -> FaultsetError:
    """Return the error for a file that the system does not let this user read."""
    reason = (problem.strerror if isinstance(problem, OSError) else None) or type(problem).__name__
    if isinstance(problem, PermissionError):
        return error(f"{printable(path)} cannot be read ({reason}); let this user read it")
    return error(f"{printable(path)} cannot be read ({reason}); restore it, or give another path")


def _kind(state: os.stat_result) -> str:
    if stat.S_ISLNK(state.st_mode):
        return "a link, and links are not followed"
    return _KINDS.get(stat.S_IFMT(state.st_mode), "a file")
