"""Lock a folder for one writer, across machines, and create new folders atomically."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, Self

import psutil
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from faultset.core.errors import DataError

ProcessState = Literal["alive", "dead", "unknown"]
_Word = Annotated[str, Field(max_length=256, pattern=r"^[\x20-\x7e]*$")]


class ProcessIdentity(BaseModel):
    """Identify a process across the machines, containers and boots that share a folder.

    Attributes
    ----------
    host
        Name of the machine or container.
    machine
        Id of the installed system; empty if it has none.
    boot
        The kernel's id of this boot.
    pid_namespace
        Namespace that `pid` belongs to.
    started
        Start of the process in kernel ticks since boot, which clock changes do not affect.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    host: _Word
    machine: _Word
    boot: _Word
    pid_namespace: _Word
    pid: Annotated[int, Field(gt=0, lt=2**31)]
    started: Annotated[int, Field(ge=0, lt=2**63)]

    @classmethod
    def current(cls) -> Self:
        """Return the identity of this process."""
        return cls(
            host=platform.node(),
            machine=_read("/etc/machine-id"),
            boot=_read("/proc/sys/kernel/random/boot_id"),
            pid_namespace=_pid_namespace(),
            pid=os.getpid(),
            started=_read_start(os.getpid()),
        )

    def state(self) -> ProcessState:
        """Return whether the process runs; "unknown" for another machine or container."""
        current = ProcessIdentity.current()
        if self.host != current.host or self.pid_namespace != current.pid_namespace:
            return "unknown"
        if self.boot != current.boot:
            # the same machine may have rebooted
            return "dead" if self.machine and self.machine == current.machine else "unknown"
        try:
            # if process 1 does not reap children, an ended process remains a zombie
            is_zombie = psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE
            is_dead = is_zombie or _read_start(self.pid) != self.started
        except psutil.NoSuchProcess:
            is_dead = True
        return "dead" if is_dead else "alive"

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()[:256]
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _read_start(pid: int) -> int:
    """Return the start of a process in ticks; raise psutil.NoSuchProcess."""
    try:
        return int(
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
        )
    except (OSError, IndexError):
        return int(psutil.Process(pid).create_time() * 100)


LOCK = ".lock"
_LARGEST_BYTES = 4096
_POLL_S = 0.2


class LockRecord(BaseModel):
    """Content of a lock file: the writing process and its activity."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    owner: ProcessIdentity
    activity: str = Field(max_length=40, pattern=r"^[a-z ]+$")


@contextmanager
def lock_folder(
    root: Path,
    activity: str,
    *,
    wait_s: float = 30.0,
    take_over: bool = False,
    notify: Callable[[str], None] = lambda sentence: None,
) -> Iterator[int]:
    """Hold a folder's lock; yield its descriptor, which a child process may inherit to hold the lock as well.

    Parameters
    ----------
    root
        An existing folder.
    activity
        Activity of this process, for instance `collect`.
    wait_s
        Maximum wait for the children of a dead owner, which hold the lock until they have cleaned up.
    take_over
        Take the lock of an owner on another machine or in another container, whose state is unknown here.
    notify
        Called with a sentence before a wait.

    Raises
    ------
    DataError
        Another process writes or may write, or the folder cannot be locked.
    """
    try:
        descriptor = _open_locked(root, time.monotonic() + wait_s, notify)
    except OSError as error:
        raise DataError(f"{root} cannot be locked for writing ({error.strerror}); choose another folder") from None
    try:
        record = _read_record(root, descriptor)
        if record is not None:
            _reject_live_owner(root, record, take_over)
        text = LockRecord(owner=ProcessIdentity.current(), activity=activity).model_dump_json().encode()
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text, 0)
        except OSError as error:
            raise DataError(f"{root} cannot be locked for writing ({error.strerror}); choose another folder") from None
        try:
            yield descriptor
        finally:
            with contextlib.suppress(OSError):
                (root / LOCK).unlink()
    finally:
        os.close(descriptor)


def _open_locked(root: Path, deadline: float, notify: Callable[[str], None]) -> int:
    """Open the folder's lock file, lock it with `flock` and return its descriptor."""
    has_notified = False
    while True:
        descriptor = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise DataError(f"{root / LOCK} must be a regular file; remove it")
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                # the previous owner may have removed the file, and another process may have created a new one
                if os.path.samestat(os.fstat(descriptor), os.stat(root / LOCK, follow_symlinks=False)):
                    return descriptor
            os.close(descriptor)
            continue
        except BlockingIOError:
            record = _read_record(root, descriptor)
            os.close(descriptor)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL):
                raise DataError(
                    f"the file system of {root} cannot lock files; choose a folder on another one"
                ) from None
            raise
        except DataError:
            os.close(descriptor)
            raise
        if record is None or record.owner.state() != "dead" or time.monotonic() > deadline:
            raise DataError(_describe_use(root, record))
        if not has_notified:
            notify(
                f"{record.activity} ({record.owner}) has ended; waiting until its child processes have undone their "
                f"changes and release {root}"
            )
            has_notified = True
        time.sleep(_POLL_S)


def _read_record(root: Path, descriptor: int) -> LockRecord | None:
    """Return the content of the lock file; None if it is still empty."""
    content = os.pread(descriptor, _LARGEST_BYTES + 1, 0)
    if not content:
        return None
    try:
        if len(content) > _LARGEST_BYTES:
            raise ValueError
        return LockRecord.model_validate_json(content)
    except (ValidationError, ValueError):
        raise DataError(
            f"{root / LOCK} is not a lock file of faultset; remove it if no process writes to the folder"
        ) from None


def _reject_live_owner(root: Path, record: LockRecord, take_over: bool) -> None:
    state = record.owner.state()
    if state == "alive" and record.owner != ProcessIdentity.current():
        raise DataError(_describe_use(root, record))
    if state == "unknown" and not take_over:
        raise DataError(
            f"{root} was locked by {record.activity} ({record.owner}: another machine or container), which may still "
            f"be running; wait for it to end, then run 'faultset recover --out {root} --break-lock'"
        )


def _describe_use(root: Path, record: LockRecord | None) -> str:
    writer = f"{record.activity} ({record.owner})" if record else "another process"
    return f"{root} is being written by {writer}; wait for it to end, or choose another folder"


@contextmanager
def new_folder(out: Path, activity: str) -> Iterator[Path]:
    """Yield an empty folder that becomes `out` when the block ends without an error, and is removed otherwise.

    Parameters
    ----------
    out
        Target folder; must not exist or must be empty.
    activity
        Activity of this process, shown to other processes that try to lock the folder.

    Raises
    ------
    DataError
        `out` is not empty, or another process is writing it.
    """
    if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise DataError(f"{out} must be a new or empty folder; choose another")
    scratch = out.with_name(f".{out.name}.incomplete")
    scratch.mkdir(parents=True, exist_ok=True)
    if scratch.is_symlink() or (any(scratch.iterdir()) and not (scratch / LOCK).is_file()):
        raise DataError(f"{scratch} is needed for writing and holds other data; remove it or choose another folder")
    folder = scratch / out.name
    try:
        with lock_folder(scratch, activity):
            # a killed process may have left the folder
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            try:
                yield folder
                if out.exists():
                    out.rmdir()
                folder.rename(out)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    finally:
        with contextlib.suppress(OSError):
            scratch.rmdir()
