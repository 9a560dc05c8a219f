"""Check of what a load driver promises."""

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
    """Check that a load driver sends requests and tells every end of them as a result.

    Parameters
    ----------
    url
        `http://ADDRESS:PORT` of a server that answers the request, which the caller has started.
    request
        A request that the server answers.
    options
        What a spec would give the driver.

    Raises
    ------
    AssertionError
        The message says what is wrong.
    """
    asyncio.run(_check(driver, url, request, options or {}))


async def _check(driver: LoadDriverClass, url: str, request: ScheduledRequest, options: Mapping[str, Any]) -> None:
    made = driver(LoadTarget(url=url, local_address=None, timeout_s=_TIMEOUT_S, options=options))
    try:
        results = await asyncio.gather(*(made.send(request) for _ in range(5)))
        for result in results:
            _check_result(result)
            assert result.outcome == "ok", f"an answered request has the outcome ok; found {result.outcome}"
        cancelled = asyncio.create_task(made.send(request))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
    finally:
        await made.close()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{unused.getsockname()[1]}"
        made = driver(LoadTarget(url=nowhere, local_address=None, timeout_s=_TIMEOUT_S, options=options))
        try:
            result = await made.send(request)
        finally:
            await made.close()
    _check_result(result)
    found = f"found {result.outcome}"
    assert result.outcome in ("refused", "timeout"), f"where nobody listens, a request is refused; {found}"


def _check_result(result: object) -> None:
    assert isinstance(result, RequestResult), f"send returns a RequestResult; found {result!r}"
    assert result.outcome in OUTCOMES, f"an outcome is one of {', '.join(OUTCOMES)}; found {result.outcome!r}"
