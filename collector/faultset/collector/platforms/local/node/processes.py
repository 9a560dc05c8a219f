"""Run commands in containers, reap child processes, and create the programs that containers can run."""

from __future__ import annotations

import os
import selectors
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from faultset.collector.ipc.processes import DeferredResponse
from faultset.collector.platforms.local.messages import ExecutionResult
from faultset.collector.platforms.local.node.containers import Container, send
from faultset.collector.platforms.local.node.resource_usage import ProcessTable

_READ_BYTES = 1 << 16


class ChildExit(NamedTuple):
    """The exit of a child; `group` is 0 if it is unknown."""

    pid: int
    group: int
    code: int
    user_s: float
    system_s: float


class Reaper:
    """Wakes the event loop when children end, including adopted ones.

    Parameters
    ----------
    selector
        Selector of the node's event loop.
    on_exit
        Called for each child that has ended.
    on_done
        Called after `on_exit` has been called for all of them.
    """

    def __init__(
        self, selector: selectors.BaseSelector, on_exit: Callable[[ChildExit], None], on_done: Callable[[], None]
    ):
        self._on_exit, self._on_done = on_exit, on_done
        reader, writer = socket.socketpair()
        for end in (reader, writer):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        self._wakeup = (reader, writer)
        selector.register(reader, selectors.EVENT_READ, self._reap)

    def _reap(self, _: int) -> None:
        self._wakeup[0].recv(_READ_BYTES)
        while True:
            try:
                child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if child is None:
                break
            pid = child.si_pid
            try:
                group = os.getpgid(pid)
            except ProcessLookupError:
                group = 0
            _, status, usage = os.wait4(pid, 0)
            self._on_exit(ChildExit(pid, group, os.waitstatus_to_exitcode(status), usage.ru_utime, usage.ru_stime))
        self._on_done()


def kill_descendants(table: ProcessTable) -> None:
    """Kill all descendants, in any process group."""
    while remaining := table.descendants():
        for pid in remaining:
            send(os.kill, pid, signal.SIGKILL)
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG) == (0, 0):
                    break
            except ChildProcessError:
                return
        time.sleep(0.002)


class Execution:
    """A command that runs in a container; it counts as ended even if background processes remain.

    Parameters
    ----------
    pid
        Process id of the command.
    container
        The container in which the command runs.
    reply
        Response to the request for the command.
    deadline
        Monotonic time in seconds at which the command is killed.
    output
        File descriptor of the command's output; closed here.
    selector
        Selector of the node's event loop.
    """

    def __init__(
        self,
        pid: int,
        container: Container,
        reply: DeferredResponse[ExecutionResult],
        *,
        deadline: float,
        output: int,
        selector: selectors.BaseSelector,
    ):
        self.pid, self.container, self._reply, self._deadline = pid, container, reply, deadline
        self._output, self._selector, self._text = output, selector, b""
        os.set_blocking(output, False)
        selector.register(output, selectors.EVENT_READ, lambda _: self._capture())

    def finish(self, code: int) -> None:
        """Send the exit code and the output so far as the response."""
        self._capture()
        self._close()
        self._reply.resolve(ExecutionResult(code=code, output=self._text.decode(errors="replace")))

    def fail(self, reason: str) -> None:
        """Send an error as the response."""
        self._close()
        self._reply.fail(reason)

    def expire(self, now: float) -> None:
        """Kill the command if its deadline has passed."""
        if now >= self._deadline:
            self._reply.fail("the command did not end before its timeout")
            send(os.kill, self.pid, signal.SIGKILL)

    def _capture(self) -> None:
        if self._output < 0:
            return
        try:
            while data := os.read(self._output, _READ_BYTES):
                self._text += data
        except BlockingIOError:
            return
        self._close()

    def _close(self) -> None:
        if self._output >= 0:
            self._selector.unregister(self._output)
            os.close(self._output)
            self._output = -1


PROGRAMS: dict[str, str] = {
    "faultset-service": "faultset.collector.runtime.service:main",
    "faultset-store": "faultset.collector.runtime.stores.server:main",
    "faultset-wait": "faultset.collector.runtime.http.client:main",
}
"""Programs that run as a fork of the node, which has already imported them."""

SCRIPTS: dict[str, str] = {
    **PROGRAMS,
    "faultset-work": "faultset.collector.runtime.processes:main",
}
"""Programs that `exec` can run in a container, in addition to the system's programs."""

PAUSE = ("/bin/sh", "-c", 'trap "exit 0" TERM INT; while :; do sleep 3600 & wait $!; done')


def write_scripts(folder: Path, redis: Mapping[str, str]) -> None:
    """Create the commands of containers in a folder: scripts for our programs and links to Redis.

    Parameters
    ----------
    folder
        Created if missing; comes first in the containers' PATH.
    redis
        Paths of Redis programs by name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, function in SCRIPTS.items():
        module, _, attribute = function.partition(":")
        code = f"import sys; from {module} import {attribute}; sys.exit({attribute}())"
        script = folder / name
        command = f"exec {shlex.quote(sys.executable)} -c {shlex.quote(code)}"
        script.write_text(f'#!/bin/sh\n{command} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    for name, path in redis.items():
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(path)


def build_search_path(folder: Path) -> str:
    """Return the PATH of containers; `folder` contains our scripts."""
    return os.pathsep.join([str(folder), "/usr/local/bin", "/usr/bin", "/bin"])


def find_program(argv: tuple[str, ...] | list[str], path: str) -> str | None:
    """Return the file that a command executes, or None if `path` does not contain it."""
    return shutil.which(argv[0], path=path)
