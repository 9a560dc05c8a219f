"""A stand-in for Kafka: a broker over Redis Streams that keeps its messages in memory, with the texts of sarama."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from faultset.collector.runtime.http.status import ErrorTexts
from faultset.collector.runtime.stores.broker import RedisBroker
from faultset.collector.runtime.stores.driver import ClientContext, StoreAddress, StoreClient
from faultset.collector.runtime.stores.redis_driver import RedisDriver


class KafkaDriver(RedisDriver):
    """A Redis server that refuses messages when 256 MB are full."""

    name = "kafka"
    port = 9092
    keeps_data = False
    carries_messages = True
    timeout_s = 10.0
    redials = False
    extra_rights = ("+xreadgroup",)
    options = MappingProxyType({"appendonly": "no", "maxmemory": "256mb", "maxmemory-policy": "noeviction"})

    def client(self, store: StoreAddress, context: ClientContext) -> StoreClient:
        """Return a client that publishes and consumes."""
        return RedisBroker(self, store, context)

    def refused_login(self) -> str:
        """Return the client's text."""
        return "kafka server: SASL Authentication failed"

    def refused_command(self, store: StoreAddress, command: Sequence[str], reply: str) -> str:
        """Return the server's text."""
        return "kafka server: The client is not authorized to access this topic"

    def failed_connection(self, error: BaseException, address: str, texts: ErrorTexts, *, timed_out: bool) -> str:
        """Return the client's text."""
        reason = texts.connection_failed(error, address)
        return f"kafka: client has run out of available brokers to talk to: {reason}"
