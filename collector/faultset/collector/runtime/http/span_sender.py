"""Send spans to an OTLP/HTTP receiver once a second, in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import urlsplit

from faultset.collector.runtime.http.client import BrokenError, DialError, HttpClient, Names, host_and_port
from faultset.collector.runtime.tracing import RecordedSpan, SpanEncoder

_PAUSE_S = 1.0
_MAX_BUFFERED = 8192
_BATCH_SPANS = 1024
_TIMEOUT_S = 2.0
_RETRY_PAUSE_S = 0.5
_FLUSH_S = 3.0
_CONNECTION_AGE_S = 60.0


def pod_resource(service: str, pod: str, namespace: str | None = None) -> dict[str, str]:
    """Return the resource attributes of a pod's spans."""
    location = {"k8s.namespace.name": namespace} if namespace else {}
    return {"service.name": service, "k8s.pod.name": pod, **location}


class SpanSender:
    """Buffers ended spans and sends them; spans that cannot be sent in time or exceed the buffer are dropped.

    Parameters
    ----------
    resource
        Attributes of the process, from `pod_resource`.
    endpoint
        Base URL of the receiver.
    local
        Address to send from; None for any.
    """

    def __init__(self, resource: Mapping[str, str], endpoint: str, local: str | None):
        url = urlsplit(endpoint)
        self._encoder, self._local, self._encrypted = SpanEncoder(resource), local, url.scheme == "https"
        self._host, self._port = host_and_port(url)
        self._head = (
            f"POST {url.path.rstrip('/')}/v1/traces HTTP/1.1\r\nHost: {url.netloc}\r\n"
            "Content-Type: application/x-protobuf\r\nContent-Length: "
        )
        self._buffer: list[RecordedSpan] = []
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None
        self._client: HttpClient | None = None

    def add(self, span: RecordedSpan) -> None:
        """Add a span to the buffer; needs a running event loop."""
        buffer = self._buffer
        if len(buffer) < _MAX_BUFFERED:
            buffer.append(span)
        if self._sending is not None:
            return
        if len(buffer) >= _BATCH_SPANS:
            self._begin()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_PAUSE_S, self._begin)

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sending is None and self._buffer:
            self._sending = asyncio.get_running_loop().create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._buffer:
                batch, self._buffer = self._buffer[:_BATCH_SPANS], self._buffer[_BATCH_SPANS:]
                await self._send(self._encoder.encode(batch))
        finally:
            self._sending = None

    async def _send(self, body: bytes) -> None:
        """Send a request; retry failures until the timeout."""
        if self._client is None:
            self._client = HttpClient(
                local=self._local,
                names=Names(None),
                dial_timeout_s=_TIMEOUT_S,
                max_age_s=_CONNECTION_AGE_S,
                encrypted=self._encrypted,
            )
        head = f"{self._head}{len(body)}\r\n\r\n".encode()
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                while True:
                    try:
                        response = await self._client.request(self._host, self._port, head, body)
                    except (DialError, BrokenError):
                        pass
                    else:
                        if response.status < 500 and response.status not in (408, 429):
                            return
                    await asyncio.sleep(_RETRY_PAUSE_S)
        except TimeoutError:
            return

    async def close(self) -> None:
        """Send the remaining spans within a short time and close connections."""
        self._begin()
        if self._sending is not None:
            await asyncio.wait((self._sending,), timeout=_FLUSH_S)
            if self._sending is not None:
                self._sending.cancel()
        if self._client is not None:
            self._client.close()
