"""The launcher, a process that imports the platform's modules once and forks, so that processes start in milliseconds.

`python -m faultset.collector.ipc.launcher MODULE:FUNCTION` forks the launcher and then calls the function. In any other
program, the first `launch` starts the launcher. The launcher ends with its program, and its children end with the
launcher.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faultset.collector.ipc.channel import Message, decode, encode
from faultset.collector.ipc.forking import call_function, check_single_thread, spawn
from faultset.core.errors import PlatformError
from faultset.core.processes import die_with_parent, import_path, name_process, python_command

PRELOADED = (
    "faultset.collector.runtime.service",
    "faultset.collector.runtime.stores.server",
    "faultset.collector.load.__main__",
    "faultset.collector.platforms.local.node.node",
    "faultset.collector.platforms.local.relay.process",
)
"""Modules that the launcher imports; none imports a table library, whose memory every service would inherit."""
_PACKET_BYTES = 1 << 20
_PARENT_CHECK_S = 1.0


@dataclass(frozen=True, kw_only=True)
class StartProcess(Message):
    """Request to call a function in a new process.

    Attributes
    ----------
    name
        Name of the process.
    function
        The function, as `module:name`.
    arguments
        Its arguments, as a JSON list.
    """

    name: str
    function: str
    arguments: str
    folder: Path
    environment: dict[str, str]


class ForkedProcess:
    """A process that the launcher started, with the main methods of `subprocess.Popen`.

    Parameters
    ----------
    pid
        Its process id.
    handle
        Its process file descriptor.
    exit_code
        Pipe on which the launcher reports its exit code.
    """

    def __init__(self, pid: int, handle: int, exit_code: int):
        self.pid = pid
        self.returncode: int | None = None
        self._handle, self._exit_code = handle, exit_code

    def poll(self) -> int | None:
        """Return the exit code, negative after a signal; None while the process is running."""
        return self.returncode if self.returncode is not None else self._read(0.0)

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for the end and return the exit code; raise `subprocess.TimeoutExpired` after the timeout."""
        code = self.returncode if self.returncode is not None else self._read(timeout_s)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout_s or 0.0)
        return code

    def terminate(self) -> None:
        """Send SIGTERM, unless the process has ended."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, unless the process has ended."""
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self.poll() is None:
            try:
                signal.pidfd_send_signal(self._handle, number)
            except ProcessLookupError:
                return

    def _read(self, timeout_s: float | None) -> int | None:
        poll = select.poll()
        poll.register(self._exit_code, select.POLLIN)
        if not poll.poll(None if timeout_s is None else 1000 * timeout_s):
            return None
        data = os.read(self._exit_code, 16)
        # without a report, the launcher was killed, and the kernel kills its children
        self.returncode = int(data) if data else -signal.SIGKILL
        os.close(self._exit_code)
        os.close(self._handle)
        return self.returncode


class LauncherClient:
    """Client of a launcher process.

    Parameters
    ----------
    connection
        Socket of the launcher.
    pid
        Process id of the launcher.
    wait
        Waits until the launcher has ended.
    """

    def __init__(self, connection: socket.socket, pid: int, wait: Callable[[], object]):
        self.pid, self.owner, self.has_ended = pid, os.getpid(), False
        self._connection, self._wait = connection, wait
        self._lock = threading.Lock()
        atexit.register(self.close)

    def start(self, request: StartProcess, log: Path) -> ForkedProcess:
        """Start a process whose output is appended to `log`; raise PlatformError if the launcher has ended."""
        reader, writer = os.pipe()
        with log.open("ab") as output, self._lock:
            try:
                socket.send_fds(self._connection, [encode(request)], [output.fileno(), writer])
                data, (handle,), _, _ = socket.recv_fds(self._connection, _PACKET_BYTES, 1)
            except (OSError, ValueError) as error:
                self.has_ended = True
                os.close(reader)
                raise PlatformError(
                    f"the launcher of processes ended before it started {request.name}; deploy again"
                ) from error
            finally:
                os.close(writer)
        return ForkedProcess(int(data), handle, reader)

    def close(self) -> None:
        """End the launcher and its children, and wait for it."""
        if self.owner == os.getpid():
            self._connection.close()
            self._wait()


class LauncherServer:
    """The launcher's loop: starts processes and reports their exit codes until the program ends.

    Parameters
    ----------
    connection
        Socket to the program that uses the launcher.
    program
        Process id of that program.
    """

    def __init__(self, connection: socket.socket, program: int):
        self._connection, self._program = connection, program
        self._selector = selectors.DefaultSelector()
        self._selector.register(connection, selectors.EVENT_READ)
        self._children: dict[int, tuple[int, int]] = {}

    def serve(self) -> None:
        """Serve until the program closes its socket or has ended."""
        while os.getppid() == self._program:
            for key, _ in self._selector.select(_PARENT_CHECK_S):
                if key.fileobj is not self._connection:
                    self._reap(key.fd)
                elif not self._start():
                    return

    def _start(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._connection, _PACKET_BYTES, 2)
        if not data:
            return False
        request = decode(StartProcess, data)
        log, exit_code = descriptors

        def run(arguments: list[str]) -> Any:
            # files may contain store passwords, so only this user may read them
            os.umask(0o077)
            # as in any Python program, writing to a closed connection must raise an error
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)
            name_process(request.name)
            return call_function(request.function, json.loads(request.arguments))

        pid = spawn(run, [request.name], group=None, output=(log, log), env=request.environment, folder=request.folder)
        handle = os.pidfd_open(pid)
        self._children[handle] = (pid, exit_code)
        self._selector.register(handle, selectors.EVENT_READ)
        socket.send_fds(self._connection, [str(pid).encode()], [handle])
        return True

    def _reap(self, handle: int) -> None:
        pid, exit_code = self._children.pop(handle)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self._selector.unregister(handle)
        os.close(handle)
        with contextlib.suppress(BrokenPipeError):
            os.write(exit_code, str(code).encode())
        os.close(exit_code)


_launcher: LauncherClient | None = None
_launcher_lock = threading.Lock()


def get_launcher() -> LauncherClient:
    """Return the launcher of this process; start it if there is none."""
    global _launcher
    with _launcher_lock:
        if _launcher is None or _launcher.has_ended or _launcher.owner != os.getpid():
            _launcher = _start_launcher()
        return _launcher


def _start_launcher() -> LauncherClient:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = python_command("-m", __name__, str(os.getpid()), str(theirs.fileno()))
    environment = {**os.environ, "PYTHONPATH": import_path()}
    with theirs:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=environment,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return LauncherClient(ours, process.pid, process.wait)


def _fork_launcher() -> LauncherClient:
    """Fork the launcher from this process, which must have no other thread."""
    program = os.getpid()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    launcher = os.fork()
    if launcher == 0:
        try:
            die_with_parent(program)
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            os.dup2(0, 1)
            descriptor = os.dup2(theirs.fileno(), 3)
            os.closerange(4, 4096)
            theirs.detach()
            ours.detach()
            _serve(socket.socket(fileno=descriptor), program)
        finally:
            os._exit(0)
    theirs.close()
    return LauncherClient(ours, launcher, lambda: os.waitpid(launcher, 0))


def _serve(connection: socket.socket, program: int) -> None:
    name_process("launcher")
    gc.collect()
    gc.freeze()
    LauncherServer(connection, program).serve()


def main(arguments: Sequence[str]) -> None:
    """Serve as the launcher for `PID SOCKET_DESCRIPTOR`, or fork a launcher and call `MODULE:FUNCTION`."""
    global _launcher
    for module in PRELOADED:
        importlib.import_module(module)
    check_single_thread()
    if len(arguments) == 2:
        program, descriptor = map(int, arguments)
        _serve(socket.socket(fileno=descriptor), program)
        return
    _launcher = _fork_launcher()
    call_function(arguments[0], ())


if __name__ == "__main__":
    # `__main__` is a separate copy of this module, but other modules look for `_launcher` in the imported one
    importlib.import_module("faultset.collector.ipc.launcher").main(sys.argv[1:])
