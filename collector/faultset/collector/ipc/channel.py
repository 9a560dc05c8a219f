"""Calls between the processes of one episode: JSON lines over a Unix socket.

A request is `{"verb": ..., "args": {...}}`, an answer `{"result": ...}` or `{"error": "..."}`.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from faultset.core.errors import PlatformError

Handlers = Mapping[str, Callable[..., Any]]


async def serve(path: Path, handlers: Handlers) -> asyncio.Server:
    """Listen on `path` inside a running event loop; handlers may be async."""

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                request = json.loads(line)
                try:
                    result = handlers[request["verb"]](**request["args"])
                    if asyncio.iscoroutine(result):
                        result = await result
                    reply = {"result": result}
                except Exception as error:
                    reply = {"error": f"{type(error).__name__}: {error}"}
                writer.write(json.dumps(reply).encode() + b"\n")
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    return await asyncio.start_unix_server(client, path, limit=1 << 26)


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

    def call(self, verb: str, **args: Any) -> Any:
        """Send one request and return its result; raise PlatformError when the other side failed or is gone."""
        with self._lock:
            try:
                self._socket.sendall(json.dumps({"verb": verb, "args": args}).encode() + b"\n")
                line = self._file.readline()
            except OSError as error:
                raise PlatformError(f"{self._path.stem} did not answer {verb}: {error}") from None
        if not line:
            raise PlatformError(f"{self._path.stem} ended while it was asked for {verb}")
        reply = json.loads(line)
        if "error" in reply:
            raise PlatformError(f"{self._path.stem} could not {verb}: {reply['error']}")
        return reply["result"]

    def close(self) -> None:
        """Close the connection."""
        self._file.close()
        self._socket.close()
