"""Processes that we start, and the temporary folders of those that were killed."""

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
from collections.abc import Iterator
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
BEHIND_OTHERS = 10
"""Niceness of what can wait."""
_TRIES = 5
_PAUSE_S = 0.1
"""The kernel takes one change of a session's niceness in this time."""


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel signal this process when the thread that started it ends; exit at once if `parent` is gone.

    Parameters
    ----------
    parent
        Process id of the parent, as it knows it itself.
    number
        Signal to send.
    """
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def give_way() -> None:
    """Let the other processes of this machine go first from now on, for what this thread does and starts."""
    os.nice(BEHIND_OTHERS)
    # where the kernel shares processors by session, the niceness of a process counts inside its session only
    set_session_nice(BEHIND_OTHERS)


def session_nice(pid: int | None = None) -> int:
    """Return the niceness of a process's session, this one's by default; 0 where the kernel has none."""
    try:
        return int(_session_file(pid).read_text().rpartition(" ")[2])
    except (OSError, ValueError):
        return 0


def set_session_nice(nice: int, pid: int | None = None) -> None:
    """Let all processes of a process's session go behind others, or beside them again.

    Unlike the niceness of a process it may be lowered without privileges. Where the kernel has no niceness of sessions,
    or the process is gone, nothing happens.
    """
    for _ in range(_TRIES):
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
    """Set the name that `ps` shows, at most fifteen bytes."""
    _prctl(_PR_SET_NAME, name.encode()[:15])


def _prctl(option: int, value: int | bytes) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def python_command(*arguments: str) -> list[str]:
    """Return the command of an interpreter like this one."""
    # Without -P it would import from the working folder first: a random.py of anybody's.
    return [sys.executable, "-P", *arguments]


def import_path() -> str:
    """Return where this process imports from, as a value of PYTHONPATH; in a notebook that holds its folder."""
    folders = [entry or str(Path.cwd()) for entry in sys.path]
    return os.pathsep.join(folder for folder in folders if Path(folder).exists())


_NAME = re.compile(r"faultset-(dask|labels|fetched|methods|cut|copy)-(\d+)-(\d+)-(\d+)-\w+")


def make_scratch(purpose: str) -> Path:
    """Make a temporary folder whose name says which process it belongs to, and remove those of processes that ended.

    Parameters
    ----------
    purpose
        dask, labels, fetched, methods, cut or copy.
    """
    remove_abandoned()
    owner = f"{_namespace()}-{os.getpid()}-{_started(os.getpid())}"
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
    """Remove the temporary folders of this user whose process, of this process namespace, has ended."""
    with contextlib.suppress(OSError):
        for folder in Path(tempfile.gettempdir()).iterdir():
            match = _NAME.fullmatch(folder.name)
            if match is None:
                continue
            namespace, process, started = map(int, match.groups()[1:])
            with contextlib.suppress(OSError):
                mine = not folder.is_symlink() and folder.is_dir() and folder.stat().st_uid == os.getuid()
                if mine and namespace == _namespace() and _started(process) != started:
                    shutil.rmtree(folder, ignore_errors=True)


def _namespace() -> int:
    """Return the number of the namespace that process ids are of; another container may share the folder."""
    return os.stat("/proc/self/ns/pid").st_ino


def _started(process: int) -> int | None:
    """Return when a process started, in ticks since boot; None when it has ended."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(text.rpartition(")")[2].split()[19])
