"""Read JSON lines and documents of any size piece by piece.

A unit is what a reader takes at once: a line, a document, or an item of the array in which a large document holds its
records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from faultset.datasets.imports.telemetry.content import Content, DamagedError

CONTAINERS = frozenset({
    "data", "result", "results", "resourceSpans", "resource_spans", "resourceMetrics", "resource_metrics",
    "resourceLogs", "resource_logs", "batches", "traces", "trace", "hits", "items", "streams", "response", "responses",
    "object",
})  # fmt: skip
"""Keys under which documents hold their records."""
_SMALL_BYTES = 48 << 20
_DEEPEST = 1_000
_OPENING, _CLOSING = np.frombuffer(b"[{", np.uint8), np.frombuffer(b"]}", np.uint8)
_START = re.compile(r"[\[{]")
NOT_JSON = "is not complete JSON"


def json_units(content: Content, stream: IO[bytes], broken: dict[str, int]) -> Iterator[Any]:
    """Yield the units of a JSON file.

    Parameters
    ----------
    broken
        Receives the number of lines or documents that are not JSON, by reason.
    """
    if is_json_lines(content):
        yield from _lines(content, stream, broken)
        return
    text = b""
    try:
        text = stream.read(_SMALL_BYTES)
    except DamagedError as error:
        broken[str(error)] = 1
    if len(text) < _SMALL_BYTES:
        yield from _documents(text.decode("utf-8", "replace"), content, broken)
    else:
        yield from _items(content, _JoinedStream(text, stream), broken)


def is_json_lines(content: Content) -> bool:
    """Return whether the first line is a complete JSON object or array, followed by another or by nothing."""
    line, newline, rest = content.head.lstrip().partition(b"\n")
    if not newline and not content.is_whole:
        return False
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        # The first line may be truncated; the lines after it are still valid.
        second = rest.lstrip().partition(b"\n")[0]
        return line.startswith(b"{") and second.startswith(b"{") and _loads(second) is not None
    return isinstance(first, dict | list) and (not rest.strip() or rest.lstrip()[:1] in (b"{", b"["))


def _loads(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _lines(content: Content, stream: IO[bytes], broken: dict[str, int]) -> Iterator[Any]:
    lines = content.lines(stream)
    while True:
        try:
            line = next(lines, b"end of file")
        except DamagedError as error:
            broken[str(error)] = 1
            return
        if line == b"end of file":
            return
        if line is None:
            broken["is a line of more than 64 MB"] = broken.get("is a line of more than 64 MB", 0) + 1
        elif line.strip():
            try:
                unit = json.loads(line.decode("utf-8", "replace"))
            except (ValueError, RecursionError):
                broken[NOT_JSON] = broken.get(NOT_JSON, 0) + 1
                continue
            yield unit


def _documents(text: str, content: Content, broken: dict[str, int]) -> Iterator[Any]:
    """Yield whole documents; from a truncated document, yield its complete records."""
    decoder = json.JSONDecoder()
    position = 0
    while match := _START.search(text, position):
        position = match.start()
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            broken[NOT_JSON] = broken.get(NOT_JSON, 0) + 1
            yield from _items(content, _JoinedStream(text[position:].encode("utf-8", "replace"), None), {})
            return
        yield value


def _items(content: Content, stream: Any, broken: dict[str, int]) -> Iterator[Any]:
    """Yield the items of the first array of records, one at a time."""
    import ijson

    prefix = find_prefix(content.head)
    if prefix is None:
        if content.size > _SMALL_BYTES:
            broken["is a document of more than 48 MB without a known array of records"] = 1
        return
    try:
        yield from ijson.items(stream, prefix, use_float=True)
    except (ijson.JSONError, UnicodeDecodeError, RecursionError, OverflowError):
        broken[NOT_JSON] = broken.get(NOT_JSON, 0) + 1
    except DamagedError as error:
        broken[str(error)] = 1


def find_prefix(head: bytes) -> str | None:
    """Return ijson's prefix of the first array of records in a document; None if there is none.

    >>> find_prefix(b'{"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {')
    'data.result.item'
    >>> find_prefix(b'[{"traceId": "1", "id"'), find_prefix(b'{"spans": [')
    ('item', None)
    """
    import ijson

    try:
        for prefix, event, _ in ijson.parse(_JoinedStream(head, None), buf_size=4096):
            keys = prefix.split(".") if prefix else []
            if event == "start_array" and all(key in CONTAINERS for key in keys):
                return ".".join([*keys, "item"])
    except (ijson.JSONError, UnicodeDecodeError, DamagedError):
        return None
    return None


class _JoinedStream:
    """A file object that joins bytes already read and the rest of their stream."""

    def __init__(self, first: bytes, rest: IO[bytes] | None) -> None:
        self._first, self._rest, self._depth = memoryview(first), rest, 0

    def read(self, size: int = -1) -> bytes:
        if self._first:
            count = len(self._first) if size < 0 else size
            piece, self._first = bytes(self._first[:count]), self._first[count:]
        else:
            piece = b"" if self._rest is None else self._rest.read(size)
        self._check_depth(piece)
        return piece

    def _check_depth(self, piece: bytes) -> None:
        """Refuse deep nesting: the parser's time grows with the square of the depth. Brackets in strings count too."""
        letters = np.frombuffer(piece, np.uint8)
        steps = np.isin(letters, _OPENING).astype(np.int32) - np.isin(letters, _CLOSING)
        depths = np.cumsum(steps)
        if len(depths):
            if self._depth + int(depths.max()) > _DEEPEST:
                raise DamagedError(f"is nested deeper than {_DEEPEST:,} levels")
            self._depth += int(depths[-1])
