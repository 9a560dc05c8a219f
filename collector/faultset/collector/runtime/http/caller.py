"""Calls to other services: no deadline, no retry, and failures with the status codes of gRPC."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

import aiohttp
from opentelemetry.context import Context
from opentelemetry.trace import Span

from faultset.collector.runtime.http.connections import Connections
from faultset.collector.runtime.http.error_texts import ErrorTexts
from faultset.collector.runtime.http.names import Names
from faultset.collector.runtime.http.status import Code, RpcError, response_class
from faultset.collector.runtime.signals.metrics import NO_RESPONSE, Metrics
from faultset.collector.runtime.signals.tracing import Tracing, fail, headers_of

_DIAL_TIMEOUT_S = 20.0


class Caller:
    """Calls operations of other services by name.

    Parameters
    ----------
    ports:
        Port of every service.
    """

    def __init__(
        self,
        *,
        ports: Mapping[str, int],
        names: Names,
        local: str | None,
        tracing: Tracing,
        metrics: Metrics,
        texts: ErrorTexts,
    ):
        self._texts = texts
        self._ports = ports
        self._names = names
        self._tracing = tracing
        self._metrics = metrics
        self._connections = Connections(
            local=local,
            resolver=names,
            timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=_DIAL_TIMEOUT_S, sock_read=None),
        )

    async def call(self, service: str, operation: str, body: Any, context: Context) -> Any:
        """Return the reply of an operation; raise RpcError."""
        span = self._tracing.client(operation, context, {"component": "gRPC", "peer.service": service})
        start, answered, code = time.perf_counter(), NO_RESPONSE, Code.OK
        try:
            answered, text = await self._post(service, operation, body, span)
            reply = json.loads(text)
            if answered == "200":
                return reply
            raise RpcError(Code(reply["code"]), reply["message"])
        except RpcError as error:
            code = error.code
            fail(span, str(error))
            raise
        except asyncio.CancelledError:
            code = Code.CANCELED
            fail(span, self._texts.call_given_up())
            raise
        finally:
            span.set_attributes({"response_code": int(code), "response_class": response_class(code)})
            span.end()
            self._metrics.client(service, operation, "POST", answered).observe(time.perf_counter() - start)

    async def _post(self, service: str, operation: str, body: Any, span: Span) -> tuple[str, str]:
        port = self._ports[service]
        headers = {"Content-Type": "application/json", **headers_of(span)}
        try:
            async with (
                self._connections.session() as session,
                session.post(
                    f"http://{service}:{port}{operation}", data=json.dumps(body).encode(), headers=headers
                ) as response,
            ):
                return str(response.status), await response.text("utf-8")
        except aiohttp.ClientConnectorError as error:
            raise self._unreachable(service, error.os_error) from None
        except aiohttp.ServerTimeoutError:
            raise self._unreachable(service, TimeoutError()) from None
        except (aiohttp.ClientError, ConnectionError):
            raise RpcError(Code.UNAVAILABLE, self._texts.call_failed(None)) from None

    def _unreachable(self, service: str, error: OSError) -> RpcError:
        address = f"{self._names.last.get(service, service)}:{self._ports[service]}"
        return RpcError(Code.UNAVAILABLE, self._texts.call_failed(self._texts.connection_failed(error, address)))

    async def close(self) -> None:
        """Close idle connections."""
        await self._connections.close()
