"""The server side of a channel for a process with a selector loop of its own and no threads."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Generic

from faultset.collector.ipc.calls import Handlers, error_line, read_request, result_line
from faultset.collector.ipc.messages import AnswerT, Request


class DeferredAnswer(Generic[AnswerT]):
    """An answer that comes later; a handler returns one instead of its result.

    Parameters
    ----------
    request
        What is answered.
    """

    def __init__(self, request: Request[AnswerT]) -> None:
        self._request = request
        self._send: Callable[[bytes], None] | None = None
        self._line: bytes | None = None

    def resolve(self, result: AnswerT) -> None:
        """Send the result; only the first answer counts."""
        self._settle(result_line(self._request, result))

    def fail(self, error: str) -> None:
        """Send an error; only the first answer counts."""
        self._settle(error_line(error))

    def attach(self, send: Callable[[bytes], None]) -> None:
        """Say how to send the answer, which may be there already."""
        self._send = send
        if self._line is not None:
            send(self._line)

    def _settle(self, line: bytes) -> None:
        if self._line is None:
            self._line = line
            if self._send is not None:
                self._send(line)


class Server:
    """Answers requests from any number of clients on a Unix socket.

    Parameters
    ----------
    path
        The socket.
    selector
        Loop that owns the file descriptors; the data of each key is a function of the event mask.
    handlers
        Functions by type of request; they may return a DeferredAnswer.
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
            if isinstance(result, DeferredAnswer):
                result.attach(self._send)
            else:
                self._send(result_line(request, result))
        except Exception as error:
            self._send(error_line(error))

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
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
        self._selector.modify(self._socket, wanted, self._ready)

    def _close(self) -> None:
        if self._socket.fileno() >= 0:
            self._selector.unregister(self._socket)
            self._socket.close()
