"""Values of the options of `evaluate`: delays, amounts of memory."""

from __future__ import annotations

import re
from typing import Literal

from faultset.core.command_line.console import comma_separated
from faultset.core.errors import UsageError

LEAST_MEMORY = 256 << 20
"""Bytes that loading an episode takes."""
MOST_MEMORY = 1 << 50
"""Bytes; what a kernel can limit is not much more."""


def delays(text: str | None, what: str = "delay") -> Literal["auto"] | tuple[float, ...]:
    """Read the grid of a curve: "auto", or seconds by comma; `what` says in errors what they are.

    Examples
    --------
    >>> delays("60,0,15s")
    (0.0, 15.0, 60.0)
    """
    if text is None or text == "none":
        return ()
    if text == "auto":
        return "auto"
    found = set()
    for part in comma_separated(text):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)s?", part)
        if match is None:
            raise UsageError(f'"{part}" is not a {what}; write auto, or seconds by comma, for instance 0,10,30')
        found.add(float(match[1]))
    return tuple(sorted(found))


def memory_bytes(text: str) -> int:
    """Read an amount of memory such as 2GiB or 500MB.

    Examples
    --------
    >>> memory_bytes("2GiB"), memory_bytes("500MB")
    (2147483648, 500000000)
    """
    from dask.utils import parse_bytes

    try:
        amount = int(parse_bytes(text))
    except OverflowError:
        amount = MOST_MEMORY + 1
    except ValueError:
        raise UsageError(f'"{text}" is not an amount of memory; write for instance 2GiB or 500MB') from None
    if amount < LEAST_MEMORY:
        raise UsageError(f"a memory limit of {text} is too little to load an episode; give at least 256MiB")
    if amount > MOST_MEMORY:
        raise UsageError(f"a memory limit of {text[:40]} is more than a machine has; give at most 1024TiB")
    return amount
