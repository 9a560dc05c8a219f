"""Units of time, and times and durations as text. All times are UTC nanoseconds since 1970."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

from faultset.core.errors import UsageError
from faultset.core.printable import quoted

SECOND_NS = 1_000_000_000
_EPOCH_UNITS = ((10**17, 1, "ns"), (10**14, 1_000, "µs"), (10**11, 1_000_000, "ms"), (0, SECOND_NS, "s"))
"""For each unit: the smallest number that is interpreted in it, its nanoseconds, and its name."""
SHORTEST_STEP_S, LONGEST_STEP_S = 0.001, 86_400.0
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)", re.ASCII)


def parse_duration(text: str) -> float:
    """Return a duration in seconds; infinity if it overflows.

    >>> parse_duration("1m30s"), parse_duration("500ms")
    (90.0, 0.5)

    Raises
    ------
    ValueError
        The text is not a series of numbers with the units ms, s, m and h.
    """
    if not text or _PART.sub("", text):
        raise ValueError(f"{text[:40]!r} is not a duration")
    seconds = sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(text))
    return seconds if math.isfinite(seconds) else math.inf


def find_epoch_unit(magnitude: float) -> tuple[int, str]:
    """Return the nanoseconds and the name of the unit that an epoch number of this magnitude has.

    >>> find_epoch_unit(1_660_000_000_000)
    (1000000, 'ms')
    """
    return next((unit_ns, name) for minimum, unit_ns, name in _EPOCH_UNITS if magnitude >= minimum)


def duration_text(seconds: float) -> str:
    """Return an estimated duration as text, in seconds, minutes or hours.

    >>> [duration_text(seconds) for seconds in (0.2, 8, 146, 3960, 36000)]
    ['1 s', '8 s', '2 min', '66 min', '10 h']
    """
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.0f} h"


def elapsed_text(seconds: float) -> str:
    """Return the time since a start as hours, minutes and seconds.

    >>> elapsed_text(3725.4)
    '1:02:05'
    """
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def rfc3339(time_ns: int) -> str:
    """Return a time in whole seconds, as Kubernetes writes it.

    >>> rfc3339(1760000000 * SECOND_NS)
    '2025-10-09T08:53:20Z'
    """
    return datetime.fromtimestamp(time_ns // SECOND_NS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def utc_text(time_ns: int) -> str:
    """Return a time in whole seconds without its zone, for texts that mention UTC elsewhere.

    >>> utc_text(1760000000 * SECOND_NS)
    '2025-10-09 08:53:20'
    """
    return datetime.fromtimestamp(time_ns // SECOND_NS, UTC).strftime("%Y-%m-%d %H:%M:%S")


def step_seconds(step: float | str) -> float:
    """Return the length of a step in seconds; a string is parsed as a duration, as on the command line.

    >>> step_seconds("500ms"), step_seconds(2)
    (0.5, 2.0)

    Raises
    ------
    UsageError
        The step is not a duration, or is not between one millisecond and one day.
    """
    try:
        seconds = parse_duration(step.strip()) if isinstance(step, str) else float(step)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(
            f'a step must be a number of seconds or text such as "1s" or "500ms", got {quoted(step)}'
        ) from None
    if not SHORTEST_STEP_S <= seconds <= LONGEST_STEP_S:
        raise UsageError(
            f"a step must be from {SHORTEST_STEP_S:g} s to {LONGEST_STEP_S:g} s long, got {quoted(step)}; "
            'give another one, for instance "1s"'
        )
    return seconds


Time = int | str | datetime | None
"""UTC nanoseconds, a timestamp, or an ISO 8601 string, in UTC unless it names another zone."""


def time_ns(time: Time, default_ns: int) -> int:
    """Return a time in UTC nanoseconds; for None, return the default.

    >>> time_ns("2025-10-09T08:53:20", 0)
    1760000000000000000

    Raises
    ------
    UsageError
        The value is not a time.
    """
    if time is None:
        return default_ns
    if isinstance(time, int) and not isinstance(time, bool):
        return time
    import pandas as pd

    try:
        stamp = pd.Timestamp(time)
        if stamp is pd.NaT:
            raise ValueError
        return int((stamp.tz_localize("UTC") if stamp.tzinfo is None else stamp.tz_convert("UTC")).as_unit("ns").value)
    except (ValueError, TypeError, OverflowError):
        raise UsageError(
            f'a time must be UTC nanoseconds or text such as "2025-10-09T08:53:20", got {quoted(time)}'
        ) from None
