"""Calls from inside an event loop to another process of the episode."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from faultset.core.errors import PlatformError

_LONGEST_LINE = 1 << 26


class Peer:
    """A process that may not exist yet, or any more; connected when it is needed."""

    def __init__(self, path: Path):
        self._path = path
        self._lock = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, verb: str, *, timeout_s: float, **args: Any) -> Any:
        """Send one request and return its result.

        Raises
        ------
        OSError
            When the process is not there or does not answer in time (TimeoutError).
        PlatformError
            When it answers with an error.
        """
        async with self._lock:
            try:
                async with asyncio.timeout(timeout_s):
                    line = await self._exchange({"verb": verb, "args": args})
            except BaseException:
                self.close()
                raise
        reply = json.loads(line)
        if "error" in reply:
            raise PlatformError(f"{self._path.stem} could not {verb}: {reply['error']}")
        return reply["result"]

    def close(self) -> None:
        """Close the connection; the next call makes a new one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _exchange(self, request: dict[str, Any]) -> bytes:
        if self._streams is None:
            self._streams = await asyncio.open_unix_connection(self._path, limit=_LONGEST_LINE)
        reader, writer = self._streams
        writer.write(json.dumps(request).encode() + b"\n")
        await writer.drain()
        line = await reader.readline()
        if not line:
            raise ConnectionResetError(f"{self._path.stem} ended")
        return line
