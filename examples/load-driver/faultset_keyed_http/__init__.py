"""A load driver for applications that require a key in a header of every request."""

from __future__ import annotations

import aiohttp

from faultset.collector.load.driver import LoadTarget, RequestResult
from faultset.collector.load.schedule import ScheduledRequest


class KeyedHttpDriver:
    """Send requests with the key from the spec: `load: {driver: keyed-http, options: {key: ...}}`."""

    def __init__(self, target: LoadTarget):
        self._url = target.url.rstrip("/")
        self._session = aiohttp.ClientSession(
            headers={"X-Api-Key": str(target.options["key"])}, timeout=aiohttp.ClientTimeout(total=target.timeout_s)
        )

    async def send(self, request: ScheduledRequest) -> RequestResult:
        """Send a request; errors become results."""
        url = f"{self._url}{request.path}"
        try:
            async with self._session.request(request.method, url, params=request.parameters) as response:
                await response.read()
                return RequestResult("ok" if response.status < 400 else "http_error", response.status)
        except TimeoutError:
            return RequestResult("timeout")
        except (aiohttp.ClientError, OSError):
            return RequestResult("refused")

    async def close(self) -> None:
        """Close connections."""
        await self._session.close()
