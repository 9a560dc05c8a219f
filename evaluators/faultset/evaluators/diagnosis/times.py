"""Times of an incident: read them from text, and show them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from faultset.core.errors import UsageError
from faultset.core.printable import quoted
from faultset.core.times import SECOND_NS, utc_text

if TYPE_CHECKING:
    from faultset.datasets.format.context import EpisodeContext

_DAY_NS = 86_400 * SECOND_NS


def clock_text(time_ns: int, window_ns: tuple[int, int]) -> str:
    """Return a UTC time to the second, with its date if the window is longer than a day."""
    form = "%Y-%m-%d %H:%M:%S" if window_ns[1] - window_ns[0] > _DAY_NS else "%H:%M:%S"
    return datetime.fromtimestamp(time_ns // SECOND_NS, UTC).strftime(form)


def read_moment(text: str, start_ns: int) -> int:
    """Return a time in UTC nanoseconds.

    Parameters
    ----------
    text
        A time in ISO 8601 (UTC if it has no offset), or a time of day such as "14:03" or "14:03:20".
    start_ns
        Start of the telemetry; a time of day means its first occurrence after the start.

    Raises
    ------
    UsageError
        `text` is not a time.
    """
    try:
        return _to_nanoseconds(datetime.fromisoformat(text.strip()))
    except ValueError:
        pass
    start = datetime.fromtimestamp(start_ns // SECOND_NS, UTC)
    try:
        moment_ns = _to_nanoseconds(datetime.fromisoformat(f"{start:%Y-%m-%d}T{text.strip()}"))
    except ValueError:
        raise UsageError(
            f"a time must be written like 14:03:20 or {start:%Y-%m-%dT%H:%M:%SZ}, got {quoted(text)}; use UTC"
        ) from None
    return moment_ns if moment_ns >= start_ns else moment_ns + _DAY_NS


def _to_nanoseconds(moment: datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    elapsed = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return elapsed // timedelta(microseconds=1) * 1000


def check_moment(moment_ns: int, context: EpisodeContext) -> int:
    """Return a moment; raise UsageError unless telemetry exists before and after it."""
    if context.view_start_ns < moment_ns < context.view_end_ns:
        return moment_ns
    raise UsageError(
        f"the time of the incident must be inside the telemetry, from {utc_text(context.view_start_ns)} to "
        f"{utc_text(context.view_end_ns)} UTC, but is {utc_text(moment_ns)}; choose another time"
    )
