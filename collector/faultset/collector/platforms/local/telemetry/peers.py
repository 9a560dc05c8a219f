"""Calls from inside an event loop to another process of the episode."""

from __future__ import annotations

import asyncio
from pathlib import Path

from faultset.collector.ipc.channel import LONGEST_LINE_BYTES, AnswerT, Request, read_answer, request_line


class Peer:
    """A process that may not exist yet, or any more; connected when it is needed."""

    def __init__(self, path: Path):
        self._path = path
        self._lock = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, request: Request[AnswerT], *, timeout_s: float) -> AnswerT:
        """Send one request and return its answer.

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
                    line = await self._exchange(request_line(request))
            except BaseException:
                self.close()
                raise
        return read_answer(request, line, self._path.stem)

    def close(self) -> None:
        """Close the connection; the next call makes a new one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _exchange(self, request: bytes) -> bytes:
        if self._streams is None:
            self._streams = await asyncio.open_unix_connection(self._path, limit=LONGEST_LINE_BYTES)
        reader, writer = self._streams
        writer.write(request)
        await writer.drain()
        line = await reader.readline()
        if not line:
            raise ConnectionResetError(f"{self._path.stem} ended")
        return line
