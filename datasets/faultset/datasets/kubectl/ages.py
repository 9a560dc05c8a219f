"""Lengths of time and ages as kubectl prints them."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Return a length of time in one or two units, as `HumanDuration` of Kubernetes' apimachinery does.

    >>> duration(75), duration(130), duration(4000), duration(5 * 3600 + 60), duration(50 * 3600)
    ('75s', '2m10s', '66m', '5h1m', '2d2h')
    """
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    whole = max(0, whole)
    minutes, hours, days, years = whole // 60, whole // 3600, whole // 86400, whole // (365 * 86400)
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if days < 2:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if years < 2:
        return f"{days}d"
    return _two(years, "y", days % 365, "d") if years < 8 else f"{years}y"


def age(seconds: float | None) -> str:
    """Return how long ago something came to be; None when that is not known.

    >>> age(75), age(None)
    ('75s', '<unknown>')
    """
    return "<unknown>" if seconds is None else duration(seconds)


def _two(many: int, unit: str, few: int, lower_unit: str) -> str:
    return f"{many}{unit}{few}{lower_unit}" if few else f"{many}{unit}"
