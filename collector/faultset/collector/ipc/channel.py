"""Requests between the processes of one episode over a Unix socket."""

from __future__ import annotations

import asyncio
import functools
import json
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, get_args, overload

from pydantic import ConfigDict, TypeAdapter, ValidationError

from faultset.core.errors import PlatformError

ResponseT = TypeVar("ResponseT")
ValueT = TypeVar("ValueT")
_TYPES: dict[str, type[Message]] = {}


class Message:
    """Base class of messages, which are frozen dataclasses identified by their class name.

    Decoding checks field types strictly and rejects unknown fields.
    """

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _TYPES[f"{cls.__module__}.{cls.__qualname__}"] = cls


class Request(Message, Generic[ResponseT]):
    """A message that expects a response; the type argument is the type of the response."""

    __slots__ = ()

    @classmethod
    def answer_type(cls) -> Any:
        return next(get_args(base)[0] for base in cls.__orig_bases__ if get_args(base))  # type: ignore[attr-defined]


class InvalidMessage(PlatformError):
    """A received message is invalid or has an unexpected type."""


def message_types() -> tuple[type[Message], ...]:
    """Return all message types imported so far."""
    return tuple(kind for kind in _TYPES.values() if kind is not Request)


def encode(message: Message) -> bytes:
    """Return a message as a line of JSON without the line end."""
    return _build_adapter(type(message)).dump_json(message)


@overload
def decode(kind: type[ValueT], data: bytes | str) -> ValueT: ...
@overload
def decode(kind: Any, data: bytes | str) -> Any: ...
def decode(kind: Any, data: bytes | str) -> Any:
    """Parse JSON into a value of type `kind`; raise InvalidMessage if it is invalid."""
    try:
        return _build_adapter(kind).validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(key) for key in first["loc"])
        value = str(first["input"])
        raise InvalidMessage(
            f"the message is not a valid {getattr(kind, '__name__', None) or kind}: {f'{field}: ' if field else ''}"
            f"{first['msg'].lower()}, got {value[:80]!r}; run the same version of faultset in all processes"
        ) from None


@functools.cache
def _build_adapter(kind: Any) -> TypeAdapter[Any]:
    has_config = isinstance(kind, type) and issubclass(kind, Message)
    return TypeAdapter(kind) if has_config else TypeAdapter(kind, config=Message.__pydantic_config__)


Handlers = Mapping[type[Request[Any]], Callable[[Any], Any]]
"""Handler functions of a process by request type."""


def encode_request(request: Request[Any]) -> bytes:
    """Return a request as a line, including the line end."""
    return type(request).__name__.encode() + b" " + encode(request) + b"\n"


def read_request(line: bytes, handlers: Handlers) -> Request[Any]:
    """Return the request in a line; raise InvalidMessage if it is invalid or its type has no handler."""
    name, _, body = line.partition(b" ")
    for kind in handlers:
        if kind.__name__.encode() == name:
            return decode(kind, body)
    request_names = ", ".join(sorted(kind.__name__ for kind in handlers))
    raise InvalidMessage(f"a request must be one of {request_names}, got {name[:80].decode(errors='replace')!r}")


def encode_result(request: Request[Any], result: Any) -> bytes:
    """Return the response to a request as a line, including the line end."""
    return b"result " + _build_adapter(request.answer_type()).dump_json(result) + b"\n"


def encode_error(error: Exception | str) -> bytes:
    """Return an error response as a line, including the line end."""
    is_sentence = isinstance(error, str | PlatformError)
    return b"error " + json.dumps(str(error) if is_sentence else f"{type(error).__name__}: {error}").encode() + b"\n"


def read_response(request: Request[ResponseT], line: bytes, process: str) -> ResponseT:
    """Return the response in a line; raise PlatformError if it is an error or invalid."""
    word, _, body = line.partition(b" ")
    if word == b"result":
        return decode(request.answer_type(), body)
    if word == b"error":
        raise PlatformError(f"{process} failed to handle {type(request).__name__}: {decode(str, body)}")
    raise InvalidMessage(f"a response of {process} must start with result or error, got {line[:80]!r}")


LONGEST_LINE_BYTES = 1 << 26


async def serve(path: Path, handlers: Handlers) -> asyncio.Server:
    """Serve requests on the socket `path` in the running event loop; handlers may be async."""

    async def serve_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(await _respond(line, handlers))
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    return await asyncio.start_unix_server(serve_client, path, limit=LONGEST_LINE_BYTES)


async def _respond(line: bytes, handlers: Handlers) -> bytes:
    try:
        request = read_request(line, handlers)
        result: Any = handlers[type(request)](request)
        if asyncio.iscoroutine(result):
            result = await result
        return encode_result(request, result)
    except Exception as error:
        return encode_error(error)


class Channel:
    """A blocking connection to a process; may be shared between threads."""

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

    def call(self, request: Request[ResponseT]) -> ResponseT:
        """Send a request and return the response; raise PlatformError if it is an error or does not arrive."""
        name, process = type(request).__name__, self._path.stem
        with self._lock:
            try:
                self._socket.sendall(encode_request(request))
                line = self._file.readline()
            except OSError as error:
                raise PlatformError(f"{process} did not respond to {name}: {error}") from None
        if not line:
            raise PlatformError(f"{process} ended before it responded to {name}")
        return read_response(request, line, process)

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class Peer:
    """An asynchronous client that connects on demand; the process need not be running yet."""

    def __init__(self, path: Path):
        self._path = path
        self._lock = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, request: Request[ResponseT], *, timeout_s: float) -> ResponseT:
        """Send a request and return the response.

        Raises
        ------
        OSError
            The process is not running, or does not respond in time (TimeoutError).
        PlatformError
            The response is an error.
        """
        async with self._lock:
            try:
                async with asyncio.timeout(timeout_s):
                    line = await self._exchange(encode_request(request))
            except BaseException:
                self.close()
                raise
        return read_response(request, line, self._path.stem)

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
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


class DeferredResponse(Generic[ResponseT]):
    """A response that a handler returns instead of a result and resolves later."""

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
