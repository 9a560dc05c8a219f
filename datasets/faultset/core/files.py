"""Write files atomically, explain errors of the operating system, and write and read JSON text."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from faultset.core.errors import DataError, DiskFullError, UsageError

_FREE = "free some space or name another folder, then run the same command again"
_PERMIT = "let this user write there or name another folder, then run the same command again"
_REMEDIES = {
    errno.ENOSPC: _FREE,
    errno.EDQUOT: _FREE,
    errno.EFBIG: "raise the limit on file sizes (ulimit -f), then run the same command again",
    errno.EROFS: _PERMIT,
    errno.EACCES: _PERMIT,
    errno.EPERM: _PERMIT,
    errno.EMFILE: "raise the limit on open files (ulimit -n), then run the same command again",
    errno.ENFILE: "close other programs, then run the same command again",
    errno.EIO: "check the disk or name another folder, then run the same command again",
}
_MISNAMED = {errno.ELOOP: "remove the loop of links", errno.ENAMETOOLONG: "choose a shorter name"}


@contextmanager
def replacing(path: Path, *, durable: bool = True, overwrite: bool = True) -> Iterator[Path]:
    """Yield a temporary path in the same folder, renamed to `path` when the block ends without an error.

    Parameters
    ----------
    path
        File to create or replace.
    durable
        Flush content and folder to disk, so that the file survives a power failure.
    overwrite
        Whether an existing file may be replaced.

    Raises
    ------
    FileExistsError
        The file exists, or has been created in the meantime, and `overwrite` is False; or `path` is neither a file nor
        a link, for instance a device, which a rename would destroy.
    """
    if is_special(path):
        raise FileExistsError(errno.EEXIST, "not a regular file", str(path))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        if durable:
            flush(temporary)
        if overwrite:
            temporary.replace(path)
        else:
            # unlike a rename, a link fails if the name is taken
            os.link(temporary, path)
        if durable:
            flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def is_special(path: Path) -> bool:
    """Return whether the path is a folder, a device, a pipe or a socket."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISLNK(mode))


def is_disk_full(error: BaseException) -> bool:
    """Return whether the disk or quota is exhausted; some libraries report that only in their message."""
    return getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "No space left on device" in str(error)


@contextmanager
def translate_write_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a UsageError that names the path, except for a full disk."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise
        raise UsageError(
            f"{str(path)[:300]} cannot be written ({error.strerror or error}); choose another path"
        ) from error


def parquet_path(path: Path) -> Path:
    """Return the absolute path of a file, because pyarrow takes a relative path with a colon for a URI."""
    return path.absolute()


def replace_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Write a UTF-8 text file atomically; see `replacing`."""
    with replacing(path, durable=durable) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file in place and flush it to disk."""
    path.write_text(text, encoding="utf-8")
    flush(path)


def flush(path: Path) -> None:
    """Force the content of a file or a folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def translate_system_error(error: OSError) -> DataError | None:
    """Return the user error for an error of the operating system, such as a full disk or a missing permission.

    None means that the error names no file or can only be a bug.
    """
    if is_disk_full(error):
        return DiskFullError("no space left on the output disk; free some space, then run again")
    if not error.filename or error.errno not in {*_REMEDIES, *_MISNAMED}:
        return None
    path = os.fsdecode(error.filename) if isinstance(error.filename, bytes) else str(error.filename)
    remedy = _MISNAMED.get(error.errno) or "give this user permission or name another path, then run again"
    return DataError(f"{path[:300]} cannot be used ({error.strerror}); {remedy}")


def translate_resource_errors(folder: Path) -> AbstractContextManager[None]:
    """Turn a lack of disk space, permissions or descriptors into a DataError; other errors propagate.

    Parameters
    ----------
    folder
        Named in the message if the system names no file.
    """
    return _ResourceErrors(folder)


class _ResourceErrors(AbstractContextManager[None]):
    def __init__(self, folder: Path):
        self._folder = folder

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        remedy = _REMEDIES.get(error.errno or 0) if isinstance(error, OSError) else None
        if remedy is not None and isinstance(error, OSError):
            path = os.fspath(error.filename) if error.filename else self._folder
            raise DataError(f"{path} cannot be written ({error.strerror}); {remedy}") from error


_SURROGATE = re.compile("[\ud800-\udfff]")


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and without spaces, so that equal mappings give identical strings."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, with U+FFFD.

    They come from JSON that was truncated within an emoji.

    >>> replace_surrogates(json.loads('"cut \\\\ud83d"'))
    'cut \ufffd'
    """
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file in order; lines without a complete object are skipped."""
    records = []
    for line in path.read_bytes().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records
