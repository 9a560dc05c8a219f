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
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faultset.collector.ipc.channel import (
    Channel,
    Message,
    decode,
    encode,
)
from faultset.core.errors import PlatformError
from faultset.core.processes import (
    die_with_parent,
    import_path,
    name_process,
    python_command,
    session_nice,
    set_session_nice,
)


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
    parent = os.getpid()

    def become() -> object:
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
        return program(list(argv[1:]))

    pid = os.fork()
    if pid == 0:
        _exit_with(become)
    if group is not None:
        _join(pid, group or pid)
    for descriptor in set(output):
        os.close(descriptor)
    return pid


def _exit_with(function: Callable[[], object]) -> None:
    """Call a function in a forked child and exit with its result."""
    code = 1
    try:
        result = function()
        code = result if isinstance(result, int) else 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
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


PRELOADED = (
    "faultset.collector.runtime.service",
    "faultset.collector.runtime.stores.server",
    "faultset.collector.load.__main__",
    "faultset.collector.platforms.local.node",
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
    """Client of a launcher process."""

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
    """The launcher's loop: starts processes and reports their exit codes until the program ends."""

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


def environment() -> dict[str, str]:
    """Return the environment for a Python child process, which must cache bytecode and find our packages."""
    import faultset

    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    roots = [str(Path(folder).parent) for folder in faultset.__path__]
    inherited = [env["PYTHONPATH"]] if env.get("PYTHONPATH") else []
    env["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*roots, *inherited]))
    return env


def launch(name: str, function: str, arguments: Sequence[Any], *, folder: Path, log: Path) -> ForkedProcess:
    """Call `module:function` with the arguments in a new process, which ends with this program."""
    request = StartProcess(
        name=name, function=function, arguments=json.dumps(list(arguments)), folder=folder, environment=environment()
    )
    process = get_launcher().start(request, log)
    if nice := session_nice():
        set_session_nice(nice, process.pid)
    return process


_TAIL_LINES = 3


class HelperProcess:
    """A process that serves requests on a socket.

    Parameters
    ----------
    name
        Name of the process, its socket and its log.
    function
        The function that it runs, as `module:function`.
    arguments
        JSON values that the function receives after the path of the socket.
    sockets, logs
        Folders for the socket and the log.
    """

    def __init__(self, name: str, function: str, arguments: Sequence[Any], *, sockets: Path, logs: Path):
        self.name = name
        self.socket = sockets / f"{name}.sock"
        self.socket.unlink(missing_ok=True)
        self._log = logs / f"{name}.log"
        self._process = launch(name, function, [str(self.socket), *arguments], folder=logs, log=self._log)

    def connect(self, *, timeout_s: float = 60.0) -> Channel:
        """Wait for the socket and connect; raise PlatformError if the process ends or does not start in time."""
        waited_s = 0.0
        while not self.socket.exists():
            try:
                self._process.wait(0.02)
            except subprocess.TimeoutExpired:
                waited_s += 0.02
                if waited_s > timeout_s:
                    raise PlatformError(f"{self.name} did not start within {timeout_s:g} s; see {self._log}") from None
                continue
            self.check()
        return Channel(self.socket, timeout_s=timeout_s)

    def check(self) -> None:
        """Raise PlatformError if the process has ended or is stopped; a stopped process is killed first."""
        code = self._process.poll()
        if code is not None:
            raise PlatformError(f"{self.name} ended with code {code}; last log lines: {self.last_lines()}")
        if is_stopped(self._process.pid):
            self._process.kill()
            self._process.wait()
            raise PlatformError(f"{self.name} was stopped by a signal, so its data is invalid; do not stop it")

    def last_lines(self) -> str:
        return tail(self._log)

    def stop(self) -> None:
        """End the process; may be called twice."""
        try:
            self._process.terminate()
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def is_stopped(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state == "T"


def tail(path: Path) -> str:
    """Return the last lines of a file joined by ` | `; `nothing` if there are none."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    return " | ".join(line.strip() for line in text.splitlines()[-_TAIL_LINES:] if line.strip()) or "nothing"


if __name__ == "__main__":
    # `__main__` is a separate copy of this module, but other modules look for `_launcher` in the imported one
    importlib.import_module("faultset.collector.ipc.launcher").main(sys.argv[1:])
