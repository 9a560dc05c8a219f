"""Records of a container's log file: parts of long lines put together, and stack traces with the line before."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from faultset.collector.platforms.observation.log_lines import parse_line
from faultset.collector.platforms.observation.timestamps import parse_rfc3339_ns

_CONTINUES = re.compile(
    r"\s+\S|at |Caused by: |Suppressed: |Traceback \(most recent call last\)|\.\.\. \d+ more"
    r"|(?:[a-z_]\w*\.)+[A-Z]\w*(?:Exception|Error|Throwable)(?::|$)"
)
"""How lines of stack traces begin; the last is an exception of Java, which its loggers print below the message."""
_TRACEBACK = "Traceback (most recent call last)"
_WITHIN = ("During handling of the above exception", "The above exception was the direct cause")
"""Between two tracebacks of Python."""
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:: .*|:)?$")
"""The last line of a traceback of Python."""
_PAUSE_NS = 1_000_000_000
_MOST_LINES = 1_000


@dataclass(kw_only=True)
class _Record:
    begin_ns: int
    latest_ns: int
    lines: list[str] = field(default_factory=list)
    in_traceback: bool = False
    """Whether a traceback of Python has begun whose exception has not come yet."""

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip("\n") if len(self.lines) > 1 else self.lines[0]

    def takes(self, time_ns: int, line: str) -> bool:
        """Append a line that continues this record; return whether it does."""
        if time_ns - self.latest_ns > _PAUSE_NS or len(self.lines) >= _MOST_LINES:
            return False
        ends = self.in_traceback and not line[:1].isspace() and _EXCEPTION.match(line) is not None
        continues = ends or _is_continuation(line) or (len(self.lines) > 1 and line.startswith(_WITHIN))
        if continues or (len(self.lines) > 1 and not line.strip()):
            self.lines.append(line)
            self.latest_ns = time_ns
            self.in_traceback = line.startswith(_TRACEBACK) or (self.in_traceback and not ends)
            return True
        return False


def read_records(entries: Iterable[str], end_ns: int) -> Iterator[tuple[int, str]]:
    """Yield time and text of every record that was printed before a time.

    Parameters
    ----------
    entries
        Lines in the format of container runtimes: time, stream, P for a part of a line or F, and text. The two streams
        are kept apart.
    """
    parts: dict[str, str] = {}
    records: dict[str, _Record] = {}
    for entry in entries:
        stamp, _, rest = entry.rstrip("\n").partition(" ")
        stream, _, rest = rest.partition(" ")
        flag, _, text = rest.partition(" ")
        text = parts.pop(stream, "") + text
        if flag == "P":
            parts[stream] = text
            continue
        time_ns = parse_rfc3339_ns(stamp)
        if time_ns >= end_ns:
            break
        record = records.get(stream)
        if record is not None:
            if record.takes(time_ns, text):
                continue
            yield record.begin_ns, record.text
        records[stream] = _Record(
            begin_ns=time_ns, latest_ns=time_ns, lines=[text], in_traceback=text.startswith(_TRACEBACK)
        )
    for record in records.values():
        yield record.begin_ns, record.text


def _is_continuation(line: str) -> bool:
    """Return whether a line looks like one of a stack trace and has no shape of its own."""
    if _CONTINUES.match(line) is None:
        return False
    text = line.lstrip()
    return not text.startswith("{") and parse_line(text).level is None
