"""From where and to where clients of a broker connect, and in which words they fail.

The library aiokafka connects from any address to what the broker calls itself. Here each connection is made from the
pod's own address, to the address that the broker's name has at that moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable
from typing import Any, TypeVar

from faultset.collector.runtime.stores.driver import ClientContext, StoreAddress, StoreError
from faultset.collector.runtime.stores.originals.kafka.settings import MECHANISM
from faultset.collector.runtime.stores.originals.source_address import SourceAddressLoop

T = TypeVar("T")
TIMEOUT_S = 10.0
_NUMBERS = itertools.count(1)
_CONNECTORS: dict[str, BrokerConnector] = {}


class BrokerConnector:
    """How one client of the library connects.

    Attributes
    ----------
    identity
        The client's name for the broker, which no other client of this process has.
    """

    def __init__(self, store: StoreAddress, context: ClientContext, purpose: str):
        self.identity = f"{purpose}-{next(_NUMBERS)}"
        self._store, self._context = store, context
        self._failure: StoreError | None = None
        self._failed = asyncio.Event()
        _connect_by_name()
        _CONNECTORS[self.identity] = self

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of all clients of the library."""
        return {
            "bootstrap_servers": f"{self._store.name}:{self._store.port}",
            "client_id": self.identity,
            "request_timeout_ms": round(1000 * self.timeout_s),
            "retry_backoff_ms": 200,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": self._store.account.username,
            "sasl_plain_password": self._store.account.password,
        }

    @property
    def timeout_s(self) -> float:
        """Return how long an answer is waited for."""
        return self._store.connect_timeout_s or TIMEOUT_S

    async def connect(self, **options: Any) -> Any:
        """Return a connection; remember why, when there is none."""
        from aiokafka.conn import AIOKafkaConnection
        from aiokafka.errors import KafkaError

        try:
            address = await self._context.names.address(self._store.name)
            connection: Any = AIOKafkaConnection(address, self._store.port, client_id=self.identity, **options)
            if self._context.local is not None:
                connection._loop = SourceAddressLoop(asyncio.get_running_loop(), self._context.local)
            await connection.connect()
        except (OSError, KafkaError) as error:
            self._failure = self.failure_of(error)
            self._failed.set()
            raise
        self._failure = None
        return connection

    async def run(self, work: Awaitable[T], *, longest_s: float | None = None) -> T:
        """Wait for the library, which tries again for ever, until a connection fails or too much time has passed.

        Raises
        ------
        StoreError
            A connection has failed, the broker refuses, or there is no answer in time.
        """
        from aiokafka.errors import KafkaError

        self._failed.clear()
        task, failing = asyncio.ensure_future(work), asyncio.ensure_future(self._failed.wait())
        wait_s = self.timeout_s if longest_s is None else longest_s
        try:
            await asyncio.wait((task, failing), timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise self._failure or StoreError("timeout", self._context.texts.read_timed_out("?", self._place))
        except (OSError, KafkaError) as error:
            raise self.failure_of(error) from None
        finally:
            failing.cancel()
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

    def failure_of(self, error: BaseException) -> StoreError:
        """Return what the library raises as services know it: the text is the broker's where it gives one."""
        from aiokafka import errors

        texts = self._context.texts
        match error:
            case errors.SaslAuthenticationFailed() | errors.AuthenticationFailedError():
                return StoreError("login", error_text(error))
            case (
                errors.TopicAuthorizationFailedError()
                | errors.GroupAuthorizationFailedError()
                | errors.ClusterAuthorizationFailedError()
            ):
                return StoreError("rights", error_text(error))
            case errors.KafkaTimeoutError() | errors.RequestTimedOutError():
                return StoreError("timeout", texts.read_timed_out(self._context.local or "?", self._place))
            case errors.KafkaConnectionError() | errors.NodeNotReadyError():
                return self._failure or StoreError("broken", texts.connection_closed())
            case errors.KafkaError():
                return StoreError("other", error_text(error))
            case _:
                return StoreError("unreachable", texts.connection_failed(error, self._place))

    def close(self) -> None:
        """Forget the client."""
        _CONNECTORS.pop(self.identity, None)

    @property
    def _place(self) -> str:
        store = self._store
        return f"{self._context.names.last.get(store.name, store.name)}:{store.port}"


def _connect_by_name() -> None:
    """Let the library's clients connect by their `BrokerConnector`, where they have one: it offers no option for it."""
    from aiokafka import client as library
    from aiokafka.conn import create_conn

    if library.create_conn is create_conn:
        # failures are raised to services, which log them in their own way
        logging.getLogger("aiokafka").addHandler(logging.NullHandler())
        logging.getLogger("aiokafka").propagate = False
        library.create_conn = _create_connection


async def _create_connection(host: str, port: int, *, client_id: str, **options: Any) -> Any:
    from aiokafka.conn import create_conn

    connector = _CONNECTORS.get(client_id)
    if connector is None:
        return await create_conn(host, port, client_id=client_id, **options)
    return await connector.connect(**options)


def error_text(error: BaseException) -> str:
    """Return the broker's error code by its name, and what it says beside."""
    name = getattr(error, "message", type(error).__name__)
    said = ", ".join(", ".join(sorted(one)) if isinstance(one, (set, frozenset)) else str(one) for one in error.args)
    return f"{name}: {said}" if said else str(name)
