"""Requests over HTTP."""

from __future__ import annotations

from typing import Any

import aiohttp

from faultset.collector.load.driver import LoadTarget, RequestResult
from faultset.collector.load.http_connections import Connections
from faultset.collector.load.schedule import ScheduledRequest

_KEYWORDS = {"query": "params", "form": "data", "json": "json"}


class HttpDriver:
    """See `LoadDriver`; connections are reused, but not for long."""

    def __init__(self, target: LoadTarget):
        self._url = target.url.rstrip("/")
        timeout = aiohttp.ClientTimeout(total=target.timeout_s)
        self._connections = Connections(local=target.local_address, timeout=timeout)

    async def send(self, request: ScheduledRequest) -> RequestResult:
        """Send a request and read the whole answer."""
        carried: dict[str, Any] = {_KEYWORDS[request.body]: request.parameters}
        try:
            async with (
                self._connections.session() as session,
                session.request(request.method, f"{self._url}{request.path}", **carried) as response,
            ):
                await response.read()
                return RequestResult("ok" if response.status < 400 else "http_error", response.status)
        except TimeoutError:
            return RequestResult("timeout")
        except (aiohttp.ClientError, OSError):
            return RequestResult("refused")

    async def close(self) -> None:
        """Close connections."""
        await self._connections.close()
