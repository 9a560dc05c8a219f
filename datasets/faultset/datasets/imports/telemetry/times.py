"""Times of foreign records: epoch numbers of any unit, ISO 8601, access logs, and local times with a time zone."""

from __future__ import annotations

import calendar
import re
from datetime import datetime, tzinfo
from typing import Any

from faultset.core.times import SECOND_NS, find_epoch_unit

EARLIEST_NS = 946_684_800 * SECOND_NS
"""Start of the year 2000; earlier times come from tests, or are zero because the time is missing."""
LATEST_NS = 1 << 62
_ISO = re.compile(
    r"(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,12}))?\s?(Z|UTC|[+-]\d\d:?\d\d)?", re.ASCII
)
_ACCESS = re.compile(r"(\d\d)/([A-Z][a-z]{2})/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-]\d{4})", re.ASCII)
_EPOCH = re.compile(r"-?\d{9,19}(?:\.\d+)?", re.ASCII)
_MONTHS = {name: number for number, name in enumerate(calendar.month_abbr) if name}
START = re.compile(rf"[\[<(]?(?:{_ISO.pattern})[\])>]?[:,]?\s*", re.ASCII)
"""A time at the start of a line."""


def parse_time(value: Any, zone: tzinfo | None = None) -> int | None:
    """Return a time in UTC nanoseconds, or None if it is not a time.

    Parameters
    ----------
    value
        Epoch number in s, ms, µs or ns (the magnitude decides), or text.
    zone
        Time zone of strings that do not name one; UTC by default.

    Examples
    --------
    >>> parse_time("2024-01-31T23:06:12.018111600Z"), parse_time("1706742372018")
    (1706742372018111600, 1706742372018000000)
    >>> parse_time("19/Jun/2023:16:59:05 +0200"), parse_time("yesterday")
    (1687186745000000000, None)
    """
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value * find_epoch_unit(abs(value))[0]
    if isinstance(value, float):
        return _parse_float(value)
    if not isinstance(value, str):
        return None
    text = value.strip()
    match = _ISO.fullmatch(text)
    if match:
        return _build_time(match, zone)
    if _EPOCH.fullmatch(text):
        whole, _, rest = text.partition(".")
        factor, _ = find_epoch_unit(abs(int(whole)))
        return int(whole) * factor + (round(float(f"0.{rest}") * factor) if rest else 0)
    match = _ACCESS.search(text)
    return _build_access_time(match) if match else None


def find_time(line: str, zone: tzinfo | None = None) -> tuple[int, int] | None:
    """Return the time of a log line and the position of the text after it; None if it has no time.

    The line of an access log is kept whole, so its text begins at position 0.
    """
    match = START.match(line)
    if match:
        time_ns = _build_time(match, zone)
        return None if time_ns is None else (time_ns, match.end())
    match = _ACCESS.search(line, 0, 200)
    time_ns = _build_access_time(match) if match else None
    return None if time_ns is None else (time_ns, 0)


def _parse_float(value: float) -> int | None:
    if not -1e19 < value < 1e19:
        return None
    factor, _ = find_epoch_unit(abs(value))
    whole = int(value // 1)
    return whole * factor + round((value - whole) * factor)


def _build_time(match: re.Match[str], zone: tzinfo | None) -> int | None:
    fraction, offset = match[7], match[8]
    try:
        year, month, day, hour, minute, second = (int(match[group]) for group in range(1, 7))
        moment = datetime(year, month, day, hour, minute, second)
    except ValueError:
        return None
    seconds = calendar.timegm(moment.timetuple())
    if offset and offset not in ("Z", "UTC"):
        seconds -= _offset_s(offset)
    elif not offset and zone is not None:
        seconds -= round((moment.replace(tzinfo=zone).utcoffset() or moment - moment).total_seconds())
    return seconds * SECOND_NS + int((fraction or "0").ljust(9, "0")[:9])


def _build_access_time(match: re.Match[str]) -> int | None:
    month = _MONTHS.get(match[2])
    try:
        moment = datetime(int(match[3]), month or 0, int(match[1]), int(match[4]), int(match[5]), int(match[6]))
    except ValueError:
        return None
    return (calendar.timegm(moment.timetuple()) - _offset_s(match[7])) * SECOND_NS


def _offset_s(text: str) -> int:
    digits = text[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return -seconds if text[0] == "-" else seconds
