"""The contract check for load drivers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

from faultset.collector.load.driver import LoadDriverClass, LoadTarget, RequestResult
from faultset.collector.load.results import OUTCOMES
from faultset.collector.load.schedule import ScheduledRequest

_TIMEOUT_S = 5.0


def check_load_driver(
    driver: LoadDriverClass, *, url: str, request: ScheduledRequest, options: Mapping[str, Any] | None = None
) -> None:
    """Check that a load driver sends requests and reports every outcome.

    Parameters
    ----------
    url
        `http://ADDRESS:PORT` of a running server that answers the request.
    request
        A request that the server answers.
    options
        The driver's options from a spec.

    Raises
    ------
    AssertionError
        A check failed; the message says which.
    """
    asyncio.run(_check(driver, url, request, options or {}))


async def _check(driver: LoadDriverClass, url: str, request: ScheduledRequest, options: Mapping[str, Any]) -> None:
    client = driver(LoadTarget(url=url, local_address=None, timeout_s=_TIMEOUT_S, options=options))
    try:
        results = await asyncio.gather(*(client.send(request) for _ in range(5)))
        for result in results:
            _check_result(result)
            assert result.outcome == "ok", f"the outcome of an answered request must be ok, got {result.outcome}"
        cancelled = asyncio.create_task(client.send(request))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
    finally:
        await client.close()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{unused.getsockname()[1]}"
        client = driver(LoadTarget(url=closed, local_address=None, timeout_s=_TIMEOUT_S, options=options))
        try:
            result = await client.send(request)
        finally:
            await client.close()
    _check_result(result)
    assert result.outcome in ("refused", "timeout"), (
        f"the outcome at a closed port must be refused or timeout, got {result.outcome}"
    )


def _check_result(result: object) -> None:
    assert isinstance(result, RequestResult), f"send must return a RequestResult, got {result!r}"
    assert result.outcome in OUTCOMES, f"an outcome must be one of {', '.join(OUTCOMES)}, got {result.outcome!r}"
