"""Open foreign files: decompress and decode them, limit what a hostile file can use, and split JSON into records."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
import lzma
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from faultset.core.errors import DataError
from faultset.core.printable import first_line
from faultset.core.regular_files import explain_read_error, stat_regular_file

HEAD_BYTES = 1 << 17
LONGEST_LINE = 64 << 20
_SMALL_BYTES = 1 << 30
_LARGEST_RATIO = 500
"""Largest credible ratio of unpacked to packed size."""
_COMPRESSIONS = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"BZh", "bz2"), (b"\xfd7zXZ\0", "xz"))
_UNSUPPORTED = (
    (b"\x04\x22\x4d\x18", "is compressed with LZ4; decompress it"),
    (b"\xff\x06\x00\x00sNaPpY", "is compressed with framed Snappy; decompress it"),
    (b"PK\x03\x04", "is a zip archive or an office document; unpack it, or export it as CSV"),
    (b"7z\xbc\xaf\x27\x1c", "is a 7z archive; unpack it"),
    (b"%PDF", "is a PDF document; export the data instead"),
    (b"\x89PNG", "is an image; export the data instead"),
    (b"SQLite format 3", "is a SQLite database; export its tables as CSV"),
    (b"\x7fELF", "is a program; give the telemetry that it writes"),
)
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, pa.ArrowException, ValueError)


@dataclass(frozen=True, kw_only=True)
class Content:
    """A foreign file and its first bytes."""

    path: Path
    name: str
    """Its name in messages."""
    size: int
    """Its size on disk in bytes."""
    compression: str
    """gzip, zstd, bz2, xz, or empty."""
    head: bytes
    """The first bytes after decompression, without a byte-order mark, as UTF-8."""
    encoding: str
    """utf-8, utf-16, utf-32, or empty for binary data."""
    is_whole: bool
    """Whether `head` is the whole content."""

    @contextmanager
    def open(self, advance: Callable[[int], None] | None = None) -> Iterator[IO[bytes]]:
        """Open the content, decompressed and as UTF-8 if it is text; `advance` gets the size of each piece read."""
        with self.path.open("rb") as raw:
            plain = _decompress(_CountingReader(raw, advance), self.compression)
            limit = max(_SMALL_BYTES, _LARGEST_RATIO * self.size) if self.compression else None
            limited = io.BufferedReader(_LimitedReader(plain, limit, self.name), 1 << 18)
            yield _decode(limited, self.encoding)

    def lines(self, stream: IO[bytes]) -> Iterator[bytes | None]:
        """Yield the lines of an open stream without their line endings; None for a line longer than 64 MB."""
        while line := stream.readline(LONGEST_LINE):
            if len(line) < LONGEST_LINE or line.endswith(b"\n"):
                yield line.rstrip(b"\r\n")
                continue
            while (rest := stream.readline(1 << 20)) and not rest.endswith(b"\n"):
                pass
            yield None


class _CountingReader(io.RawIOBase):
    def __init__(self, raw: IO[bytes], advance: Callable[[int], None] | None) -> None:
        self._raw, self._advance = raw, advance

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = self._raw.readinto(buffer)  # type: ignore[attr-defined]
        if self._advance is not None:
            self._advance(count)
        return count


class _LimitedReader(io.RawIOBase):
    """Refuses more bytes than a file of this size can credibly unpack to."""

    def __init__(self, plain: IO[bytes], limit: int | None, name: str) -> None:
        self._plain, self._limit, self._name, self._total = plain, limit, name, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            data = self._plain.read(len(buffer))
        except _DAMAGE as error:
            reason = first_line(error)
            raise DamagedError(f"{self._name} is damaged after {self._total:,} bytes ({reason})") from None
        buffer[: len(data)] = data
        self._total += len(data)
        if self._limit is not None and self._total > self._limit:
            raise DamagedError(f"{self._name} unpacks to more than {self._limit:,} bytes; unpack it yourself")
        return len(data)


class DamagedError(DataError):
    """Damage inside a file; records before it remain valid."""


def _decompress(raw: io.RawIOBase, compression: str) -> IO[bytes]:
    buffered = io.BufferedReader(raw, 1 << 18)
    match compression:
        case "gzip":
            return gzip.GzipFile(fileobj=buffered)  # type: ignore[return-value]
        case "bz2":
            return bz2.BZ2File(buffered)  # type: ignore[return-value]
        case "xz":
            return lzma.LZMAFile(buffered)  # type: ignore[return-value]
        case "zstd":
            return pa.CompressedInputStream(pa.PythonFile(buffered, "r"), "zstd")
        case _:
            return buffered


def _decode(stream: io.BufferedReader[Any], encoding: str) -> IO[bytes]:
    if encoding in ("utf-16", "utf-32"):
        return transcode(stream, encoding)
    if encoding == "utf-8" and stream.peek(3)[:3] == codecs.BOM_UTF8:
        stream.read(3)
    return stream


def transcode(stream: IO[bytes], encoding: str) -> IO[bytes]:
    """Return a stream as valid UTF-8; invalid bytes become U+FFFD."""
    return io.BufferedReader(_TranscodingReader(stream, encoding), 1 << 18)


class _TranscodingReader(io.RawIOBase):
    def __init__(self, stream: IO[bytes], encoding: str) -> None:
        self._stream, self._decoder = stream, codecs.getincrementaldecoder(encoding)("replace")
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            data = self._stream.read(1 << 16)
            self._rest = self._decoder.decode(data, final=not data).encode("utf-8", "replace")
            if not data:
                break
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def open_content(path: Path, name: str) -> Content:
    """Return a file with its first bytes; raise DataError if it cannot hold telemetry."""
    size = stat_regular_file(path).st_size
    try:
        with path.open("rb") as file:
            start = file.read(64)
    except OSError as problem:
        raise explain_read_error(path, problem) from problem
    compression = next((kind for magic, kind in _COMPRESSIONS if start.startswith(magic)), "")
    reason = next((reason for magic, reason in _UNSUPPORTED if start.startswith(magic)), "")
    if reason:
        raise DataError(f"{name} {reason}, or leave the file out")
    raw = Content(path=path, name=name, size=size, compression=compression, head=b"", encoding="", is_whole=False)
    head = _read_head(raw, HEAD_BYTES)
    encoding = next(
        (encoding for mark, encoding in _BYTE_ORDER_MARKS if head.startswith(mark)), "" if b"\0" in head else "utf-8"
    )
    is_whole = len(head) < HEAD_BYTES
    if encoding in ("utf-16", "utf-32"):
        head = codecs.getincrementaldecoder(encoding)("replace").decode(head).encode("utf-8", "replace")
    head = head.removeprefix(codecs.BOM_UTF8)
    if not head.strip() and is_whole:
        raise DataError(f"{name} is empty; leave it out")
    return Content(
        path=path, name=name, size=size, compression=compression, head=head, encoding=encoding, is_whole=is_whole
    )


def _read_head(content: Content, size: int) -> bytes:
    """Return the first bytes, or those before the damage in a damaged file."""
    pieces: list[bytes] = []
    with content.open() as stream:
        try:
            while sum(map(len, pieces)) < size and (piece := stream.read1(1 << 14)):  # type: ignore[attr-defined]
                pieces.append(piece)
        except DamagedError:
            if not pieces:
                raise
    return b"".join(pieces)[:size]


def walk_files(paths: list[Path]) -> Iterator[Path]:
    """Yield files at and below paths in a stable order, except hidden ones and those in linked folders."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for folder, names, files in os.walk(path):
            names.sort()
            names[:] = [name for name in names if not name.startswith(".")]
            yield from (Path(folder, name) for name in sorted(files) if not name.startswith("."))


CONTAINERS = frozenset({
    "data", "result", "results", "resourceSpans", "resource_spans", "resourceMetrics", "resource_metrics",
    "resourceLogs", "resource_logs", "batches", "traces", "trace", "hits", "items", "streams", "response", "responses",
    "object",
})  # fmt: skip
"""Keys under which documents hold their records."""
_WHOLE_BYTES = 48 << 20
_MAX_DEPTH = 1_000
_OPENING, _CLOSING = np.frombuffer(b"[{", np.uint8), np.frombuffer(b"]}", np.uint8)
_START = re.compile(r"[\[{]")
NOT_JSON = "is not complete JSON"
TOO_LONG = "is a line of more than 64 MB"


def json_units(content: Content, stream: IO[bytes], broken: Counter[str]) -> Iterator[Any]:
    """Yield the units of a JSON file; count lines and documents that are not JSON in `broken`, by reason."""
    if is_json_lines(content):
        yield from _lines(content, stream, broken)
        return
    text = b""
    try:
        text = stream.read(_WHOLE_BYTES)
    except DamagedError as error:
        broken[str(error)] = 1
    if len(text) < _WHOLE_BYTES:
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
        return line.startswith(b"{") and second.startswith(b"{") and _parse_or_none(second) is not None
    return isinstance(first, dict | list) and (not rest.strip() or rest.lstrip()[:1] in (b"{", b"["))


def _parse_or_none(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _lines(content: Content, stream: IO[bytes], broken: Counter[str]) -> Iterator[Any]:
    try:
        for line in content.lines(stream):
            if line is None:
                broken[TOO_LONG] += 1
            elif line.strip():
                try:
                    unit = json.loads(line.decode("utf-8", "replace"))
                except (ValueError, RecursionError):
                    broken[NOT_JSON] += 1
                    continue
                yield unit
    except DamagedError as error:
        broken[str(error)] = 1


def _documents(text: str, content: Content, broken: Counter[str]) -> Iterator[Any]:
    """Yield whole documents; from a truncated document, yield its complete records."""
    decoder = json.JSONDecoder()
    position = 0
    while match := _START.search(text, position):
        position = match.start()
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            broken[NOT_JSON] += 1
            yield from _items(content, _JoinedStream(text[position:].encode("utf-8", "replace"), None), Counter())
            return
        yield value


def _items(content: Content, stream: Any, broken: Counter[str]) -> Iterator[Any]:
    """Yield the items of the first array of records, one at a time."""
    import ijson

    prefix = find_prefix(content.head)
    if prefix is None:
        if content.size > _WHOLE_BYTES:
            broken["is a document of more than 48 MB without a known array of records"] = 1
        return
    try:
        yield from ijson.items(stream, prefix, use_float=True)
    except (ijson.JSONError, UnicodeDecodeError, RecursionError, OverflowError):
        broken[NOT_JSON] += 1
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
            if self._depth + int(depths.max()) > _MAX_DEPTH:
                raise DamagedError(f"is nested deeper than {_MAX_DEPTH:,} levels")
            self._depth += int(depths[-1])
