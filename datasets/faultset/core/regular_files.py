"""Read untrusted files: only regular files of a limited size, and no links."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from faultset.core.errors import DataError, FaultsetError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def stat_regular_file(
    path: Path, *, below: Path | None = None, limit_bytes: int | None = None, error: type[FaultsetError] = DataError
) -> os.stat_result:
    """Check that a file may be read and return its `os.stat_result`.

    Parameters
    ----------
    path
        The file.
    below
        A folder above the file; no folder between them may be a link. By default the file's folder.
    limit_bytes
        The largest size to accept.
    error
        Class of the errors.

    Raises
    ------
    FaultsetError
        The file is missing, unreadable, too large, not a regular file, or reached through a link.
    """
    try:
        name = str(path)
        name.encode()
        for folder in _folders_between(name, str(path.parent if below is None else below)):
            state = os.lstat(folder)
            if not stat.S_ISDIR(state.st_mode):
                raise error(f"{folder} must be a folder, but is {_describe_kind(state)}; replace it with the folder")
        state = os.lstat(name)
    except FileNotFoundError:
        raise error(f"{path} is missing; restore it") from None
    except UnicodeEncodeError:
        raise error(f"{path} has a name that is not UTF-8 text; rename it") from None
    except (OSError, ValueError) as problem:
        raise explain_read_error(path, problem, error) from problem
    if not stat.S_ISREG(state.st_mode):
        raise error(f"{path} must be a regular file, but is {_describe_kind(state)}; replace it with the file")
    if limit_bytes is not None and state.st_size > limit_bytes:
        raise error(f"{path} must have at most {limit_bytes:,} bytes, but has {state.st_size:,}; restore the file")
    return state


def _folders_between(name: str, top: str) -> Iterator[str]:
    """Yield the folders between `top` and a file; strings are faster than paths for the many files of a dataset."""
    above = "" if top == "." else top.rstrip(os.sep) + os.sep
    if not name.startswith(above):
        raise ValueError(f"{name} is not below {top}")
    end = name.find(os.sep, len(above))
    while end >= 0:
        yield name[:end]
        end = name.find(os.sep, end + 1)


@dataclass(frozen=True)
class FileStamp:
    """Properties that change when a file is modified, replaced, copied or unpacked."""

    bytes: int
    modified_ns: int
    changed_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path, below: Path) -> FileStamp:
        """Return the stamp of a regular file below a folder; raise DataError for other files."""
        state = stat_regular_file(path, below=below)
        return cls(state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino)


def read_regular(
    path: Path, *, limit_bytes: int, below: Path | None = None, error: type[FaultsetError] = DataError
) -> bytes:
    """Return the content of a file that passes `stat_regular_file`."""
    stat_regular_file(path, below=below, limit_bytes=limit_bytes, error=error)
    try:
        # O_NONBLOCK: opening must not block if the file has been replaced by a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            # read(n) allocates n bytes at once
            size = min(os.fstat(descriptor).st_size, limit_bytes)
            content = file.read(size + 1)
    except OSError as problem:
        raise explain_read_error(path, problem, error) from problem
    if len(content) > size:
        raise error(f"{path} grew while it was read; run the command again when nothing writes to the file")
    return content


_GZIP = b"\x1f\x8b"


def read_unpacked(path: Path, *, limit_bytes: int) -> bytes:
    """Return the content of a file that passes `stat_regular_file`, decompressed if its content is gzip.

    Parameters
    ----------
    limit_bytes
        The largest size to accept, before and after decompression.
    """
    content = read_regular(path, limit_bytes=limit_bytes)
    if not content.startswith(_GZIP):
        return content
    import gzip
    import zlib

    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
            unpacked = stream.read(limit_bytes + 1)
    except (OSError, EOFError, zlib.error) as problem:
        raise DataError(f"{path} is damaged gzip data ({problem}); restore the file") from None
    if len(unpacked) > limit_bytes:
        raise DataError(f"{path} must have at most {limit_bytes:,} bytes after decompression; restore the file")
    return unpacked


def explain_read_error(path: Path, problem: Exception, error: type[FaultsetError] = DataError) -> FaultsetError:
    """Return the error for a file that the system refuses to read."""
    reason = (problem.strerror if isinstance(problem, OSError) else None) or type(problem).__name__
    if isinstance(problem, PermissionError):
        return error(f"{path} cannot be read ({reason}); give this user read permission")
    return error(f"{path} cannot be read ({reason}); restore it or give another path")


def _describe_kind(state: os.stat_result) -> str:
    if stat.S_ISLNK(state.st_mode):
        return "a link, and links are not followed"
    return _KINDS.get(stat.S_IFMT(state.st_mode), "a file")
