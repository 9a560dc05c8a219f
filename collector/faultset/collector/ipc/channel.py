"""Calls between the processes of one episode over a Unix socket."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from pathlib import Path
from typing import Any

from faultset.collector.ipc.calls import Handlers, error_line, read_answer, read_request, request_line, result_line
from faultset.collector.ipc.messages import AnswerT, Request
from faultset.core.errors import PlatformError

LONGEST_LINE_BYTES = 1 << 26


async def serve(path: Path, handlers: Handlers) -> asyncio.Server:
    """Listen on `path` inside a running event loop; handlers may be async."""

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(await _answer(line, handlers))
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    return await asyncio.start_unix_server(client, path, limit=LONGEST_LINE_BYTES)


async def _answer(line: bytes, handlers: Handlers) -> bytes:
    try:
        request = read_request(line, handlers)
        result: Any = handlers[type(request)](request)
        if asyncio.iscoroutine(result):
            result = await result
        return result_line(request, result)
    except Exception as error:
        return error_line(error)


class Channel:
    """Blocking client of one process; safe to share between threads."""

    def __init__(self, path: Path, *, timeout_s: float = 30.0):
        self._lock = threading.Lock()
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self._socket.connect(str(path))
                break
            except (FileNotFoundError, ConnectionRefusedError):
                if time.monotonic() > deadline:
                    raise PlatformError(f"{path.stem} did not start within {timeout_s:g} s") from None
                time.sleep(0.01)
        self._file = self._socket.makefile("rb")

    def call(self, request: Request[AnswerT]) -> AnswerT:
        """Send one request and return its answer; raise PlatformError when the other side failed or is gone."""
        name, process = type(request).__name__, self._path.stem
        with self._lock:
            try:
                self._socket.sendall(request_line(request))
                line = self._file.readline()
            except OSError as error:
                raise PlatformError(f"{process} did not answer {name}: {error}") from None
        if not line:
            raise PlatformError(f"{process} ended while it was asked for {name}")
        return read_answer(request, line, process)

    def close(self) -> None:
        """Close the connection."""
        self._file.close()
        self._socket.close()
