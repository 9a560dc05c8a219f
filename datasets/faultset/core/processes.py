"""What a Linux process asks of the kernel about its parent, its descendants and its name."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_BEHIND_OTHERS = 10
_AUTOGROUP = Path("/proc/self/autogroup")


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
    os.nice(_BEHIND_OTHERS)
    # where the kernel shares processors by session, the niceness of a process counts inside its session only
    with suppress(OSError):
        _AUTOGROUP.write_text(str(_BEHIND_OTHERS))


def name_process(name: str) -> None:
    """Set the name that `ps` shows, at most fifteen bytes."""
    _prctl(_PR_SET_NAME, name.encode()[:15])


def _prctl(option: int, value: int | bytes) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
