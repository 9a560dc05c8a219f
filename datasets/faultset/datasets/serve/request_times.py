"""Parameters of requests: integers, and times and durations in the notations of Prometheus and Loki."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from faultset.datasets.serve.promql.series import QueryError

Parameters = Mapping[str, Sequence[str]]
"""Values by name of the parameter."""

_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h|d|w|y)")
_UNIT_S = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0,
    "y": 31536000.0,
}  # fmt: skip
_LATEST_NS = 1 << 62
_MIN_NS_DIGITS = 16
"""Loki's API reads integers with at least this number of digits as nanoseconds, and shorter ones as seconds."""


def single(parameters: Parameters, name: str) -> str:
    """Return the first value of a parameter; raise QueryError if it is missing."""
    values = parameters.get(name)
    if not values or not values[0]:
        raise QueryError(f'the parameter "{name}" is missing; add it to the request')
    return values[0]


def parse_integer(parameters: Parameters, name: str, default: int) -> int:
    """Return a parameter as an integer; raise QueryError if it is not one.

    >>> parse_integer({"limit": ["20"]}, "limit", 100), parse_integer({}, "limit", 100)
    (20, 100)
    """
    text = (parameters.get(name) or [""])[0]
    if not text:
        return default
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise QueryError(f'"{name}" must be an integer, got "{text[:40]}"')
    return int(text)


def duration_s(text: str, name: str) -> float:
    """Return a duration such as `15`, `1m30s` or `500ms` in seconds; raise QueryError if it is invalid.

    >>> duration_s("1m30s", "step"), duration_s("0.5", "step")
    (90.0, 0.5)
    """
    try:
        return float(text)
    except ValueError:
        pass
    if not text or _PART.sub("", text):
        raise QueryError(f'"{name}" must be a duration such as 15s or 5m, got "{text[:40]}"')
    return sum(float(number) * _UNIT_S[unit] for number, unit in _PART.findall(text))


def parse_time_ns(parameters: Parameters, name: str, default_ns: int | None) -> int:
    """Return a time in UTC nanoseconds from seconds, nanoseconds or RFC 3339; `default_ns` if it is missing.

    >>> parse_time_ns({"time": ["1.5"]}, "time", None), parse_time_ns({"time": ["1970-01-01T00:00:02Z"]}, "time", None)
    (1500000000, 2000000000)
    """
    text = (parameters.get(name) or [""])[0]
    if not text and default_ns is not None:
        return default_ns
    text = single(parameters, name)
    if text.isdecimal() and len(text) >= _MIN_NS_DIGITS:
        return min(int(text), _LATEST_NS)
    try:
        whole, _, fraction = text.partition(".")
        if whole.isdecimal() and (not fraction or fraction.isdecimal()):
            return min(int(whole) * 1_000_000_000 + int(fraction[:9].ljust(9, "0")), _LATEST_NS)
        if re.fullmatch(r"[-+.0-9eE]+", text):
            return min(round(float(text) * 1e9), _LATEST_NS)
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except (ValueError, OverflowError):
        raise QueryError(f'"{name}" must be seconds since 1970 or RFC 3339, got "{text[:40]}"') from None
    if moment.tzinfo is None:
        raise QueryError(f'"{name}" must have a time zone, such as Z, got "{text[:40]}"')
    return round(moment.timestamp() * 1e6) * 1_000
