"""Restrict the file access of a Linux process and its children permanently, with Landlock.

No maintained package wraps the kernel's interface, which consists of three system calls with the same numbers on every
architecture. See https://docs.kernel.org/userspace-api/landlock.html.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import stat
import struct
from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1 << 0, 1 << 1
READ = _EXECUTE | _READ_FILE | _READ_DIR
LIST = _READ_DIR
WRITE = READ | _WRITE_FILE | _TRUNCATE | _REMOVE_AND_MAKE | _REFER


@functools.cache
def landlock_version() -> int:
    """Return the version of the kernel's interface; 0 if it is missing or disabled."""
    return max(0, _system_call(_CREATE_RULESET, None, 0, _VERSION_FLAG))


def confine(
    read: Iterable[str | os.PathLike[str]],
    write: Iterable[str | os.PathLike[str]] = (),
    listed: Iterable[str | os.PathLike[str]] = (),
) -> bool:
    """Restrict this thread, and everything it starts, to the given files.

    From version 6 of the kernel's interface, the thread also cannot signal processes that it did not start, or connect
    to their abstract sockets. Open descriptors stay usable. Paths that are missing or cannot be opened are ignored.

    Parameters
    ----------
    read
        Files and folders (with everything below them) to read and execute.
    write
        Files and folders to read and change.
    listed
        Folders to list without reading their files.

    Returns
    -------
    bool
        False if the kernel does not support Landlock; nothing has changed then.

    Raises
    ------
    OSError
        The kernel refused a rule.
    """
    version = landlock_version()
    if version < 1:
        return False
    handled = _supported_rights(version)
    scopes = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if version >= 6 else 0
    attributes = struct.pack("=QQQ", handled, 0, scopes)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    ruleset = _check_result(_system_call(_CREATE_RULESET, attributes, len(attributes), 0))
    try:
        for paths, rights in ((listed, LIST), (read, READ), (write, WRITE)):
            for path in paths:
                _allow(ruleset, path, rights & handled)
        _check_result(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _check_result(_system_call(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)
    return True


def _supported_rights(version: int) -> int:
    rights = READ | _WRITE_FILE | _REMOVE_AND_MAKE
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEVICE)):
        if version >= since:
            rights |= right
    return rights


def _allow(ruleset: int, path: str | os.PathLike[str], rights: int) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                rights &= _FILE_RIGHTS
            rule = struct.pack("=Qi", rights, descriptor)
            _check_result(_system_call(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0))
        finally:
            os.close(descriptor)


def _system_call(number: int, *arguments: int | bytes | None) -> int:
    return ctypes.CDLL(None, use_errno=True).syscall(number, *(_c_value(argument) for argument in arguments))


def _c_value(value: int | bytes | None) -> ctypes.c_long | bytes | None:
    return ctypes.c_long(value) if isinstance(value, int) else value


def _check_result(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
