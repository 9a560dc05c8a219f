"""Times as Kubernetes and container runtimes write them."""

from __future__ import annotations

import calendar
import functools
import time

from faultset.core.times import SECOND_NS


def rfc3339(time_ns: int) -> str:
    """Return a time in whole seconds, as in `metadata.creationTimestamp`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_ns // SECOND_NS))


def rfc3339_ns(time_ns: int) -> str:
    """Return a time with nine decimals, as container runtimes stamp log lines."""
    seconds, rest = divmod(time_ns, SECOND_NS)
    return f"{_second(seconds)}.{rest:09d}Z"


@functools.lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def parse_rfc3339_ns(text: str) -> int:
    """Return nanoseconds since 1970 of a UTC time with nine decimals."""
    date, _, rest = text.rstrip("Z").partition(".")
    numbers = [int(date[start:end]) for start, end in ((0, 4), (5, 7), (8, 10), (11, 13), (14, 16), (17, 19))]
    return calendar.timegm((*numbers, 0, 0, 0)) * SECOND_NS + int(rest.ljust(9, "0")[:9] or 0)
