"""Deadlines of requests: an instant of the event loop's clock, told to callees as the time that is left.

The header is gRPC's: a number of at most eight digits and a unit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from faultset.collector.runtime.http.error_texts import ErrorTexts
from faultset.collector.runtime.http.status import Code, RpcError

HEADER = "grpc-timeout"
_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_DIGITS = 8
_GRACE_S = 0.02
"""So much later than calls under the same deadline, so that these say themselves that it has passed."""


def now() -> float:
    """Return the present instant."""
    return asyncio.get_running_loop().time()


def earliest(*instants: float | None) -> float | None:
    """Return the earliest of some deadlines, of which any may be absent.

    >>> earliest(None, 3.0, 2.0), earliest(None)
    (2.0, None)
    """
    return min((one for one in instants if one is not None), default=None)


def header_value(left_s: float) -> str:
    """Return the time that is left as a header has it.

    >>> header_value(0.25), header_value(3600.0)
    ('250000u', '3600000m')
    """
    for unit in ("u", "m", "S"):
        value = max(0, round(left_s / _UNITS[unit]))
        if len(str(value)) <= _DIGITS:
            return f"{value}{unit}"
    return f"{10**_DIGITS - 1}S"


def time_left(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a request has left by its headers; None when it has no deadline, or none of gRPC's.

    >>> time_left({"grpc-timeout": "250m"}), time_left({"grpc-timeout": "soon"}), time_left({})
    (0.25, None, None)
    """
    text = headers.get(HEADER, "")
    digits, unit = text[:-1], text[-1:]
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS and unit in _UNITS):
        return None
    return int(digits) * _UNITS[unit]


@asynccontextmanager
async def within(deadline: float, texts: ErrorTexts) -> AsyncIterator[None]:
    """Give up what is done inside when a deadline has passed; the failure is gRPC's DEADLINE_EXCEEDED."""
    limit = asyncio.timeout_at(deadline + _GRACE_S)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise RpcError(Code.DEADLINE_EXCEEDED, texts.deadline_passed()) from None
