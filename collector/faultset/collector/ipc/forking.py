"""Start programs in forked processes, which inherit the modules that the parent has imported."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from faultset.core.processes import die_with_parent, name_process


def check_single_thread() -> None:
    """Raise RuntimeError if this process has several threads, because a fork copies only the calling thread."""
    if threading.active_count() > 1:
        names = ", ".join(thread.name for thread in threading.enumerate())
        raise RuntimeError(f"importing the programs started threads ({names}), so forking is not safe")


def call_function(path: str, arguments: Sequence[Any]) -> Any:
    """Import and call `module:function`."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)(*arguments)


def spawn(
    program: Callable[[list[str]], object] | str,
    argv: Sequence[str],
    *,
    group: int | None,
    output: tuple[int, int],
    env: Mapping[str, str],
    folder: Path,
    delay_s: float = 0.0,
) -> int:
    """Fork a process that becomes a program; return its pid.

    Parameters
    ----------
    program
        A function of the arguments after the program's name, or the file to execute.
    group
        Process group of the child, joined before this returns; 0 for a new group, None for a new session.
    output
        File descriptors for stdout and stderr; closed here.
    delay_s
        Delay before the program starts.
    """
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        _become(program, argv, parent=parent, group=group, output=output, env=env, folder=folder, delay_s=delay_s)
    if group is not None:
        _join(pid, group or pid)
    for descriptor in set(output):
        os.close(descriptor)
    return pid


def _become(
    program: Callable[[list[str]], object] | str,
    argv: Sequence[str],
    *,
    parent: int,
    group: int | None,
    output: tuple[int, int],
    env: Mapping[str, str],
    folder: Path,
    delay_s: float,
) -> None:
    """Run a program in a forked child; never returns."""
    code = 1
    try:
        _detach(output)
        if group is None:
            os.setsid()
        else:
            os.setpgid(0, group)
        die_with_parent(parent)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(env)
        if delay_s:
            time.sleep(delay_s)
        if isinstance(program, str):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execve(program, list(argv), dict(env))
        name_process(argv[-1] if len(argv) == 2 else os.path.basename(argv[0]))
        sys.argv = list(argv)
        result = program(list(argv[1:]))
        code = result if isinstance(result, int) else 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                continue
        os._exit(code & 0xFF)


def _detach(output: tuple[int, int]) -> None:
    """Reset the parent's signal handlers, close its files and redirect the standard streams."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output[0], 1)
    os.dup2(output[1], 2)
    os.closerange(3, 4096)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)


def _join(pid: int, group: int) -> None:
    """Add a child to its process group; do nothing if it has already joined or ended."""
    try:
        os.setpgid(pid, group)
    except (PermissionError, ProcessLookupError):
        return
