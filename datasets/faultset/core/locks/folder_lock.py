"""A folder has one writer at a time: a lock that the kernel holds, with the name of its owner in the file.

The kernel gives the lock back when the last process that holds it ends, however it ends. The owner's name is for
people, and for machines and containers that share a folder without sharing a kernel's locks.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from faultset.core.errors import DataError
from faultset.core.locks.process_identity import ProcessIdentity

LOCK = ".lock"
_LARGEST_BYTES = 4096
_POLL_S = 0.2


class LockRecord(BaseModel):
    """Content of a lock file: who writes, and what that process is doing."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    owner: ProcessIdentity
    activity: str = Field(max_length=40, pattern=r"^[a-z ]+$")


@contextmanager
def locked(
    root: Path,
    activity: str,
    *,
    wait_s: float = 30.0,
    take_over: bool = False,
    notify: Callable[[str], None] = lambda sentence: None,
) -> Iterator[int]:
    """Hold a folder's lock; yield its descriptor, which a child process may inherit in order to hold it too.

    Parameters
    ----------
    root
        The folder, which exists.
    activity
        What this process is doing there, for instance `collect`.
    wait_s
        How long to wait for processes whose parent, the owner, is dead: they are about to end.
    take_over
        Take the lock of an owner on another machine or in another container, of which nothing can be known here.
    notify
        Called with a sentence before a wait.

    Raises
    ------
    DataError
        Somebody else writes or may write, or the folder cannot be locked.
    """
    try:
        descriptor = _opened(root, time.monotonic() + wait_s, notify)
    except OSError as error:
        raise DataError(f"{root} cannot be locked for writing ({error.strerror}); name a folder that can") from None
    try:
        record = _read(root, descriptor)
        if record is not None:
            _refuse_living(root, record, take_over)
        text = LockRecord(owner=ProcessIdentity.current(), activity=activity).model_dump_json().encode()
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text, 0)
        except OSError as error:
            raise DataError(f"{root} cannot be locked for writing ({error.strerror}); name a folder that can") from None
        try:
            yield descriptor
        finally:
            with contextlib.suppress(OSError):
                (root / LOCK).unlink()
    finally:
        os.close(descriptor)


def _opened(root: Path, deadline: float, notify: Callable[[str], None]) -> int:
    """Return the descriptor of the folder's lock file with the kernel's lock on it."""
    has_said = False
    while True:
        descriptor = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise DataError(f"{root / LOCK} must be a plain file; remove it")
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                # an owner that ended meanwhile has removed the file, and another may have made it anew
                if os.path.samestat(os.fstat(descriptor), os.stat(root / LOCK, follow_symlinks=False)):
                    return descriptor
            os.close(descriptor)
            continue
        except BlockingIOError:
            record = _read(root, descriptor)
            os.close(descriptor)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL):
                raise DataError(f"the file system of {root} cannot lock files; name a folder on another one") from None
            raise
        except DataError:
            os.close(descriptor)
            raise
        if record is None or record.owner.state() != "dead" or time.monotonic() > deadline:
            raise DataError(_in_use(root, record))
        if not has_said:
            notify(f"waiting for the episodes of an ended {record.activity} into {root} to undo what they did")
            has_said = True
        time.sleep(_POLL_S)


def _read(root: Path, descriptor: int) -> LockRecord | None:
    """Return what the file says; None when its writer has not got that far."""
    content = os.pread(descriptor, _LARGEST_BYTES + 1, 0)
    if not content:
        return None
    try:
        if len(content) > _LARGEST_BYTES:
            raise ValueError
        return LockRecord.model_validate_json(content)
    except (ValidationError, ValueError):
        raise DataError(f"{root / LOCK} is no lock of faultset; remove it if nothing writes into the folder") from None


def _refuse_living(root: Path, record: LockRecord, take_over: bool) -> None:
    state = record.owner.state()
    if state == "alive" and record.owner != ProcessIdentity.current():
        raise DataError(_in_use(root, record))
    if state == "unknown" and not take_over:
        raise DataError(
            f"{root} was locked by {record.activity} ({record.owner}: another machine or container), which may still "
            f"run; once it has ended, run 'faultset recover --out {root} --break-lock'"
        )


def _in_use(root: Path, record: LockRecord | None) -> str:
    by = f"{record.activity} ({record.owner})" if record else "another process"
    return f"{root} is being written by {by}; wait for it to end, or name another folder"
