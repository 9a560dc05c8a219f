"""Start processes that end with their program, and serve requests in them."""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic

from faultset.collector.ipc.channel import (
    Channel,
    Handlers,
    Request,
    ResponseT,
    encode_error,
    encode_result,
    read_request,
)
from faultset.collector.ipc.launcher import ForkedProcess, StartProcess, get_launcher
from faultset.core.errors import PlatformError
from faultset.core.processes import session_nice, set_session_nice


class DeferredResponse(Generic[ResponseT]):
    """A response that a handler returns instead of a result and resolves later.

    Parameters
    ----------
    request
        The request to respond to.
    """

    def __init__(self, request: Request[ResponseT]) -> None:
        self._request = request
        self._send: Callable[[bytes], None] | None = None
        self._line: bytes | None = None

    def resolve(self, result: ResponseT) -> None:
        """Send the result; only the first response counts."""
        self._respond(encode_result(self._request, result))

    def fail(self, error: str) -> None:
        """Send an error; only the first response counts."""
        self._respond(encode_error(error))

    def attach(self, send: Callable[[bytes], None]) -> None:
        """Set the function that sends the response; if the response already exists, send it now."""
        self._send = send
        if self._line is not None:
            send(self._line)

    def _respond(self, line: bytes) -> None:
        if self._line is None:
            self._line = line
            if self._send is not None:
                self._send(line)


class Server:
    """Serves requests of any number of clients on a Unix socket.

    Parameters
    ----------
    path
        The socket.
    selector
        Selector of the event loop; the data of each key is a callback that takes the event mask.
    handlers
        Handler functions by request type; they may return a DeferredResponse.
    """

    def __init__(self, path: Path, selector: selectors.BaseSelector, handlers: Handlers):
        self._selector = selector
        self._handlers = handlers
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path.unlink(missing_ok=True)
        self._listener.bind(str(path))
        self._listener.listen(16)
        self._listener.setblocking(False)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def _accept(self, _: int) -> None:
        connection, _address = self._listener.accept()
        _Client(connection, self._selector, self._handlers)


class _Client:
    def __init__(self, connection: socket.socket, selector: selectors.BaseSelector, handlers: Handlers):
        self._socket, self._selector, self._handlers = connection, selector, handlers
        self._received, self._unsent = b"", b""
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ, self._ready)

    def _ready(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush()
        if mask & selectors.EVENT_READ:
            self._read()

    def _read(self) -> None:
        try:
            data = self._socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close()
            return
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            self._serve(line)

    def _serve(self, line: bytes) -> None:
        try:
            request = read_request(line, self._handlers)
            result = self._handlers[type(request)](request)
            if isinstance(result, DeferredResponse):
                result.attach(self._send)
            else:
                self._send(encode_result(request, result))
        except Exception as error:
            self._send(encode_error(error))

    def _send(self, line: bytes) -> None:
        self._unsent += line
        self._flush()

    def _flush(self) -> None:
        if self._socket.fileno() < 0:
            return
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._close()
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
        self._selector.modify(self._socket, events, self._ready)

    def _close(self) -> None:
        if self._socket.fileno() >= 0:
            self._selector.unregister(self._socket)
            self._socket.close()


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
        """Return the last lines of the process's log."""
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
    """Return whether a process is stopped by a signal."""
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
