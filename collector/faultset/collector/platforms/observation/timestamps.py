"""Times as Kubernetes and container runtimes write them."""

from __future__ import annotations

import functools
import time


def rfc3339(time_ns: int) -> str:
    """Return a time in whole seconds, as in `metadata.creationTimestamp`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_ns // 1_000_000_000))


def rfc3339_ns(time_ns: int) -> str:
    """Return a time with nine decimals, as container runtimes stamp log lines."""
    seconds, rest = divmod(time_ns, 1_000_000_000)
    return f"{_second(seconds)}.{rest:09d}Z"


@functools.lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def parse_rfc3339_ns(text: str) -> int:
    """Return nanoseconds since 1970 of a UTC time with nine decimals."""
    date, _, rest = text.rstrip("Z").partition(".")
    year, month, day, hour, minute, second = (
        int(date[a:b]) for a, b in ((0, 4), (5, 7), (8, 10), (11, 13), (14, 16), (17, 19))
    )
    return (_days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second) * 1_000_000_000 + int(
        rest.ljust(9, "0")[:9] or 0
    )


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the proleptic Gregorian calendar."""
    shifted = year - (month <= 2)
    era, year_of_era = divmod(shifted, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468
