"""Messages between an evaluation and its runner processes: length, then pickle, over a pipe."""

from __future__ import annotations

import os
import pickle
import struct
from typing import Any

_LENGTH = struct.Struct("!Q")


def send(descriptor: int, message: Any) -> None:
    """Write one message, waiting until the other side has room."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    left = memoryview(_LENGTH.pack(len(body)) + body)
    while left:
        left = left[os.write(descriptor, left) :]


def receive(descriptor: int) -> Any:
    """Read one message, waiting for it.

    Raises
    ------
    EOFError
        When the other side is gone.
    """
    (length,) = _LENGTH.unpack(_exactly(descriptor, _LENGTH.size))
    return pickle.loads(_exactly(descriptor, length))


def _exactly(descriptor: int, count: int) -> bytes:
    parts = []
    while count:
        part = os.read(descriptor, min(count, 1 << 20))
        if not part:
            raise EOFError("the other side closed the pipe")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


class Assembler:
    """Put messages together from whatever bytes have arrived, for readers that must not wait."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """Add bytes; return the messages that are now complete."""
        self._buffer += data
        complete = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if len(self._buffer) < _LENGTH.size + length:
                break
            complete.append(pickle.loads(bytes(self._buffer[_LENGTH.size : _LENGTH.size + length])))
            del self._buffer[: _LENGTH.size + length]
        return complete
