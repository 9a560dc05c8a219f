"""Start and name processes, set priorities, wait for conditions, and remove temporary folders of killed processes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
BACKGROUND_NICENESS = 10
"""Niceness of background work."""
_MAX_ATTEMPTS = 5
_PAUSE_S = 0.1
"""The kernel accepts one change of a session's niceness per 0.1 s."""


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel signal this process when the thread that started it ends; exit at once if `parent` is gone.

    Parameters
    ----------
    parent
        Result of `os.getpid()` in the parent.
    number
        Signal to send.
    """
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def lower_priority() -> None:
    """Lower the priority of this thread and everything it starts."""
    os.nice(BACKGROUND_NICENESS)
    # if the kernel schedules by session, a process's niceness has an effect only within its session
    set_session_nice(BACKGROUND_NICENESS)


def session_nice(pid: int | None = None) -> int:
    """Return the niceness of a process's session, by default this one; 0 if the kernel does not support it."""
    try:
        return int(_session_file(pid).read_text().rpartition(" ")[2])
    except (OSError, ValueError):
        return 0


def set_session_nice(nice: int, pid: int | None = None) -> None:
    """Set the niceness of a process's session.

    Unlike the niceness of a process, it can be lowered without privileges. Nothing happens if the kernel does not
    support it or the process has ended.
    """
    for _ in range(_MAX_ATTEMPTS):
        try:
            _session_file(pid).write_text(str(nice))
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        except OSError:
            return
        else:
            return


def _session_file(pid: int | None) -> Path:
    return Path("/proc", "self" if pid is None else str(pid), "autogroup")


def name_process(name: str) -> None:
    """Set the name that `ps` shows; longer names are cut to 15 bytes."""
    _prctl(_PR_SET_NAME, name.encode()[:15])


def _prctl(option: int, value: int | bytes) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def python_command(*arguments: str) -> list[str]:
    """Return a command that runs this interpreter."""
    # Without -P, a random.py in the working folder would shadow the standard library.
    return [sys.executable, "-P", *arguments]


def import_path() -> str:
    """Return `sys.path` as a value for PYTHONPATH; the empty entry of a notebook becomes its folder."""
    folders = [entry or str(Path.cwd()) for entry in sys.path]
    return os.pathsep.join(folder for folder in folders if Path(folder).exists())


_NAME = re.compile(r"faultset-(dask|labels|fetched|methods|cut|copy|doctor|incident)-(\d+)-(\d+)-(\d+)-\w+")


def make_scratch(purpose: str) -> Path:
    """Create a temporary folder named after this process; remove the folders of ended processes.

    Parameters
    ----------
    purpose
        dask, labels, fetched, methods, cut, copy, doctor or incident.
    """
    remove_abandoned()
    owner = f"{_namespace()}-{os.getpid()}-{_read_start(os.getpid())}"
    return Path(tempfile.mkdtemp(prefix=f"faultset-{purpose}-{owner}-"))


@contextlib.contextmanager
def scratch(purpose: str) -> Iterator[str]:
    """Yield a temporary folder that is removed afterwards."""
    folder = make_scratch(purpose)
    try:
        yield str(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned() -> None:
    """Remove this user's temporary folders whose process, in this PID namespace, has ended."""
    with contextlib.suppress(OSError):
        for folder in Path(tempfile.gettempdir()).iterdir():
            match = _NAME.fullmatch(folder.name)
            if match is None:
                continue
            namespace, process, started = map(int, match.groups()[1:])
            with contextlib.suppress(OSError):
                is_own = not folder.is_symlink() and folder.is_dir() and folder.stat().st_uid == os.getuid()
                if is_own and namespace == _namespace() and _read_start(process) != started:
                    shutil.rmtree(folder, ignore_errors=True)


def _namespace() -> int:
    """Return the id of the PID namespace; another container may share the temporary folder."""
    return os.stat("/proc/self/ns/pid").st_ino


def _read_start(process: int) -> int | None:
    """Return the start of a process in ticks since boot; None if it has ended."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(text.rpartition(")")[2].split()[19])


T = TypeVar("T")


def poll_until(check: Callable[[], T], *, timeout_s: float, pause_s: float = 0.05) -> T:
    """Call `check` until its result is true or the time is up; return the last result.

    >>> poll_until(lambda: "ready", timeout_s=1.0)
    'ready'
    """
    deadline = time.monotonic() + timeout_s
    while not (result := check()) and time.monotonic() <= deadline:
        time.sleep(pause_s)
    return result
