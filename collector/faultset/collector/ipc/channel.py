"""Calls between the processes of one episode over a Unix socket."""

from __future__ import annotations

import asyncio
import functools
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, cast, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError

from faultset.core.errors import PlatformError

AnswerT = TypeVar("AnswerT")
ValueT = TypeVar("ValueT")
_TYPES: dict[str, type[Message]] = {}


class Message:
    """Base of all messages; a subclass is a frozen dataclass and is known by its name.

    Its fields are checked strictly when it is decoded, and unknown ones are refused.
    """

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _TYPES[f"{cls.__module__}.{cls.__qualname__}"] = cls


class Request(Message, Generic[AnswerT]):
    """A message that is answered; the type argument says with what."""

    __slots__ = ()

    @classmethod
    def answer_type(cls) -> Any:
        """Return the type of the answer."""
        return next(get_args(base)[0] for base in cls.__orig_bases__ if get_args(base))  # type: ignore[attr-defined]


class InvalidMessage(PlatformError):
    """What has arrived is not the message that was expected."""


def message_types() -> tuple[type[Message], ...]:
    """Return every type of message that has been imported so far."""
    return tuple(kind for kind in _TYPES.values() if kind is not Request)


def encode(message: Message) -> bytes:
    """Return a message as one line of JSON without its line end."""
    return encode_value(type(message), message)


def decode(kind: type[ValueT], data: bytes | str) -> ValueT:
    """Return the message of a type that `encode` has made into JSON; raise InvalidMessage if it is none."""
    return decode_value(kind, data)


def encode_value(kind: Any, value: Any) -> bytes:
    """Return a value of any type that messages are made of as one line of JSON without its line end."""
    return _adapter(kind).dump_json(value)


def decode_value(kind: Any, data: bytes | str) -> Any:
    """Return the value of a type from its JSON; raise InvalidMessage when it is none."""
    try:
        return _adapter(kind).validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        found = str(first["input"])
        raise InvalidMessage(
            f"a message must be a valid {_name(kind)}; "
            f"{f'its {place}' if place else 'it'} is wrong ({first['msg'].lower()}; found {found[:80]!r}); "
            "run the same version of faultset in all processes"
        ) from None


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    has_settings = isinstance(kind, type) and issubclass(kind, Message)
    return TypeAdapter(kind) if has_settings else TypeAdapter(kind, config=Message.__pydantic_config__)


def _name(kind: Any) -> str:
    return cast(str, getattr(kind, "__name__", None) or str(kind))


Handlers = Mapping[type[Request[Any]], Callable[[Any], Any]]
"""What a process does for each type of request that it serves."""


def request_line(request: Request[Any]) -> bytes:
    """Return a request as it is sent."""
    return type(request).__name__.encode() + b" " + encode(request) + b"\n"


def read_request(line: bytes, handlers: Handlers) -> Request[Any]:
    """Return the request of a line; raise InvalidMessage when it is none of those that are served."""
    name, _, body = line.partition(b" ")
    for kind in handlers:
        if kind.__name__.encode() == name:
            return decode(kind, body)
    served = ", ".join(sorted(kind.__name__ for kind in handlers))
    raise InvalidMessage(f"a request must be one of {served}; found {name[:80].decode(errors='replace')!r}")


def result_line(request: Request[Any], result: Any) -> bytes:
    """Return the answer to a request as it is sent."""
    return b"result " + encode_value(request.answer_type(), result) + b"\n"


def error_line(error: Exception | str) -> bytes:
    """Return as it is sent that a request could not be done, and why."""
    known = isinstance(error, str | PlatformError)
    return b"error " + encode_value(str, str(error) if known else f"{type(error).__name__}: {error}") + b"\n"


def read_answer(request: Request[AnswerT], line: bytes, process: str) -> AnswerT:
    """Return the answer in a line; raise PlatformError when it is an error or no answer to this request."""
    word, _, body = line.partition(b" ")
    if word == b"result":
        return decode_value(request.answer_type(), body)
    if word == b"error":
        raise PlatformError(f"{process} could not do {type(request).__name__}: {decode_value(str, body)}")
    raise InvalidMessage(f"an answer of {process} must begin with result or error; found {line[:80]!r}")


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
