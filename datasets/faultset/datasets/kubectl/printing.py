"""Answers of tools, and tables, ages, quantities and events as kubectl prints them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from faultset.core.errors import suggest
from faultset.core.times import SECOND_NS

_GAP = 3
_MIN_WIDTH = 6
_END_OF_LINE = re.compile(r"[\f\n\r]")


def format_columns(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Format rows as a table with a header, which may be empty.

    A column is as wide as its widest cell plus three spaces, and at least six characters. Only the first line of a cell
    is printed.

    >>> format_columns(["NAME", "READY"], [["geo", "1/1"]])
    'NAME   READY\\ngeo    1/1'
    """
    lines = [list(header)] if header else []
    lines += [[_cell(value) for value in row] for row in rows]
    if not lines:
        return ""
    widths = [max(_MIN_WIDTH, _GAP + max(map(len, column))) for column in zip(*lines, strict=True)]
    return "\n".join(
        "".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _cell(value: object) -> str:
    text = "<none>" if value is None else str(value)
    first, *more = _END_OF_LINE.split(text, maxsplit=1)
    return f"{first}..." if more else text


def duration(seconds: float) -> str:
    """Return a duration in one or two units, like `HumanDuration` of Kubernetes' apimachinery.

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
        return _two_units(minutes, "m", whole % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _two_units(hours, "h", minutes % 60, "m")
    if days < 2:
        return f"{hours}h"
    if days < 8:
        return _two_units(days, "d", hours % 24, "h")
    if years < 2:
        return f"{days}d"
    return _two_units(years, "y", days % 365, "d") if years < 8 else f"{years}y"


def age(seconds: float | None) -> str:
    """Return the age of an object as text, `<unknown>` if it is None.

    >>> age(75), age(None)
    ('75s', '<unknown>')
    """
    return "<unknown>" if seconds is None else duration(seconds)


def _two_units(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large}{unit}{small}{small_unit}" if small else f"{large}{unit}"


USAGE_COLUMNS = ("CPU(cores)", "MEMORY(bytes)")
"""Columns of `kubectl top`."""


def cpu_text(cores: float) -> str:
    """Return CPU in thousandths of a core.

    >>> cpu_text(0.25)
    '250m'
    """
    return f"{round(1000 * cores)}m"


def memory_text(memory_bytes: float) -> str:
    """Return memory in mebibytes.

    >>> memory_text(64 * 2**20)
    '64Mi'
    """
    return f"{round(memory_bytes / 2**20)}Mi"


Event = Mapping[str, Any]
"""`time` in nanoseconds since 1970, `type`, `reason`, `kind`, `name`, `message` and `count`."""
COLUMNS = ("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")


def last_occurrences(events: Iterable[Event]) -> list[Event]:
    """Return the last occurrence of every event, oldest first."""
    last: dict[tuple[str, ...], Event] = {}
    for event in sorted(events, key=lambda event: event["time"]):
        key = (event["kind"], event["name"], event["reason"], event["message"])
        last.pop(key, None)
        last[key] = event
    return list(last.values())


def event_cells(event: Event, now_ns: int) -> list[str]:
    """Return the cells for `COLUMNS`."""
    subject = f"{event['kind'].lower()}/{event['name']}"
    return [duration((now_ns - event["time"]) / SECOND_NS), event["type"], event["reason"], subject, event["message"]]


def event_lines(events: Sequence[Event], now_ns: int) -> list[str]:
    """Return the lines on events in an object's description."""
    if not events:
        return [field_line("Events", "<none>")]
    rows = [(event["type"], event["reason"], _last_seen(event, now_ns), event["message"]) for event in events]
    return [
        "Events:",
        *(f"  {line}" for line in format_columns(["Type", "Reason", "Age", "Message"], rows).split("\n")),
    ]


def _last_seen(event: Event, now_ns: int) -> str:
    text = duration((now_ns - event["time"]) / SECOND_NS)
    return f"{text} (x{event['count']})" if event["count"] > 1 else text


def field_line(label: str, value: object) -> str:
    """Return a `LABEL: VALUE` line with aligned values.

    >>> field_line("Name", "geo")
    'Name:             geo'
    """
    return f"{label + ':':<18}{value}"


def stamp(time_ns: int) -> str:
    """Return a time as ISO 8601 in UTC with milliseconds; see `rfc3339` for whole seconds.

    >>> stamp(1_795_313_371_250_000_000)
    '2026-11-22T02:09:31.250Z'
    """
    seconds, rest = divmod(int(time_ns), SECOND_NS)
    time = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


AnswerStatus = Literal["ok", "empty", "absent", "not_recorded", "refused", "invalid"]
"""Kind of an answer.

- ok: the requested text
- empty: recorded, but without matching rows
- absent: no recorded object has that name
- not_recorded: not part of the recording, which says nothing about the system
- refused: a write or an interactive request
- invalid: a request that cannot be parsed
"""


@dataclass(frozen=True, kw_only=True)
class ToolAnswer:
    """The answer of a tool."""

    status: AnswerStatus
    text: str
    cursor: int | None = None
    """Start of the next page, if there is one."""


UNRECORDED = "<not-recorded>"
"""Placeholder for a field that was not recorded."""


class NegativeAnswer(Exception):
    """A request with a negative answer instead of objects."""

    def __init__(self, answer: ToolAnswer) -> None:
        super().__init__(answer.text)
        self.answer = answer


def answer_ok(text: str, cursor: int | None = None) -> ToolAnswer:
    return ToolAnswer(status="ok", text=text, cursor=cursor)


def answer_empty(reason: str) -> ToolAnswer:
    """Return the answer that no recorded row matches; the reason names the rows and the window."""
    return ToolAnswer(status="empty", text=f"No rows: {reason}.")


def answer_absent(kind: str, name: str, names: Iterable[str]) -> ToolAnswer:
    """Return the answer that a kind has no object of this name; it suggests similar names."""
    return ToolAnswer(status="absent", text=f'Not found: {kind} "{name[:200]}"; {suggest(name, names)}')


def answer_not_recorded(subject: str) -> ToolAnswer:
    """Return the answer that the requested data are not part of the recording."""
    return ToolAnswer(status="not_recorded", text=f"Not recorded: {subject}. This says nothing about the system.")


def answer_refused(reason: str) -> ToolAnswer:
    return ToolAnswer(status="refused", text=f"Refused: {reason}.")


def answer_invalid(reason: str) -> ToolAnswer:
    return ToolAnswer(status="invalid", text=f"Invalid: {reason}")


_MAX_WIDTH = 400
_MIN_REPEATS = 3


def format_folded_table(header: Sequence[str], rows: Iterable[Sequence[object]], *, repeats_once: bool = False) -> str:
    r"""Format rows like `format_columns`; join the lines of a cell, and truncate it to 400 characters.

    With `repeats_once`, columns that have the same cell in all of at least three rows become a line above the table.

    >>> format_folded_table(["NAME", "MESSAGE"], [["geo", "not\nready"]])
    'NAME   MESSAGE\ngeo    not ready'
    >>> format_folded_table(["unit", "value"], [["s", 1], ["s", 2], ["s", 3]], repeats_once=True)
    '# in all rows: unit = s\nvalue\n1\n2\n3'
    """
    cells = [[_fold(value) for value in row] for row in rows]
    if not repeats_once or len(cells) < _MIN_REPEATS:
        return format_columns(header, cells)
    constant = [len(set(column)) == 1 for column in zip(*cells, strict=True)]
    if not any(constant) or all(constant):
        return format_columns(header, cells)
    shared = ", ".join(f"{name} = {cell}" for name, cell, same in zip(header, cells[0], constant, strict=True) if same)
    varying = [column for column, same in enumerate(constant) if not same]
    table = format_columns(
        [header[column] for column in varying], [[row[column] for column in varying] for row in cells]
    )
    return f"# in all rows: {shared}\n{table}"


def _fold(value: object) -> str:
    text = "<none>" if value is None else str(value)
    return " ".join(text.split())[:_MAX_WIDTH] if len(text) > _MAX_WIDTH or len(text.splitlines()) > 1 else text


def format_number(value: float) -> str:
    """Return a number with four significant digits, without an exponent if it is large."""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
