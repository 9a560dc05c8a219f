"""Files that are whole or absent: written beside their place, then renamed."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType

from faultset.core.errors import DataError, DiskFullError, UsageError
from faultset.core.printable import printable

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
    errno.EIO: "look after the disk or name another folder, then run the same command again",
}
_MISNAMED = {errno.ELOOP: "remove the circle of links", errno.ENAMETOOLONG: "choose a shorter name"}


@contextmanager
def replacing(path: Path, *, durable: bool = True, overwrite: bool = True) -> Iterator[Path]:
    """Yield a path in the same folder to write to, which becomes `path` when the block ends without an error.

    Parameters
    ----------
    path
        File to make or to replace.
    durable
        Flush content and folder to disk, so that the file survives a power failure.
    overwrite
        Whether a file of that name may be replaced.

    Raises
    ------
    FileExistsError
        The file exists and `overwrite` is False, even if it was made meanwhile; or what is there is a device, a pipe
        or anything else but a file or a link, which a rename would destroy.
    """
    if is_special(path):
        raise FileExistsError(errno.EEXIST, "no regular file", str(path))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        if durable:
            flush(temporary)
        if overwrite:
            temporary.replace(path)
        else:
            # A link, unlike a rename, fails when the name is taken.
            os.link(temporary, path)
        if durable:
            flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def is_special(path: Path) -> bool:
    """Say whether something is there that is neither a file nor a link: a folder, a device, a pipe, a socket."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISLNK(mode))


def is_disk_full(error: BaseException) -> bool:
    """Say whether an error is that of a full disk, or of a used-up quota; some libraries only have it in their text."""
    return getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "No space left on device" in str(error)


@contextmanager
def translate_write_errors(path: Path) -> Iterator[None]:
    """Turn an error of the system into one UsageError that names what cannot be written; let a full disk pass."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise
        raise UsageError(
            f"{printable(path)[:300]} cannot be written ({error.strerror or error}); choose another place"
        ) from error


def parquet_path(path: Path) -> Path:
    """Return the absolute path of a file for pyarrow, which takes a relative path with a colon for a URI."""
    return path.absolute()


def replace_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Write a UTF-8 text file, whole or not at all; see `replacing`."""
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


def refusal(error: OSError) -> DataError | None:
    """Return one sentence for what the system refuses on this machine, such as a full disk or a forbidden file.

    None stands for errors that say no file, or something that only a bug in the program would make the system say.
    """
    if is_disk_full(error):
        return DiskFullError("no space left on the disk that is written to; free some, then run again")
    if not error.filename or error.errno not in {*_REMEDIES, *_MISNAMED}:
        return None
    place = printable(os.fsdecode(error.filename) if isinstance(error.filename, bytes) else str(error.filename))
    remedy = _MISNAMED.get(error.errno) or "let this user use it or name another place, then run again"
    return DataError(f"{place[:300]} cannot be used ({error.strerror}); {remedy}")


def translate_resource_errors(folder: Path) -> AbstractContextManager[None]:
    """Turn what the machine does not give, such as room on a disk, into one DataError; let other errors pass.

    Parameters
    ----------
    folder
        Named when the system does not name a file.
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
            place = os.fspath(error.filename) if error.filename else self._folder
            raise DataError(f"{place} cannot be written ({error.strerror}); {remedy}") from error
