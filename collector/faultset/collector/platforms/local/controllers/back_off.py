"""The kubelet's back-off: doubling waits that are forgotten after a long healthy run."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_S = 10.0
LONGEST_S = 300.0
FORGET_AFTER_S = 2 * LONGEST_S


@dataclass
class _Entry:
    wait_ns: int
    updated_ns: int


class BackOff:
    """Waits by key, counted from the event that caused them.

    Parameters
    ----------
    factor
        Multiplies every length: 1 is the ladder of a real kubelet, 10, 20, 40 … 300 s, forgotten after ten
        minutes without an event.
    """

    def __init__(self, factor: float = 1.0):
        self._first_ns = int(FIRST_S * factor * 1e9)
        self._longest_ns = int(LONGEST_S * factor * 1e9)
        self._forget_ns = int(FORGET_AFTER_S * factor * 1e9)
        self._entries: dict[str, _Entry] = {}

    def until_ns(self, key: str, event_ns: int) -> int:
        """Return when the wait that began with the event at `event_ns` ends; `event_ns` when there is none."""
        entry = self._entries.get(key)
        if entry is None or event_ns - entry.updated_ns > self._forget_ns:
            return event_ns
        return event_ns + entry.wait_ns

    def next(self, key: str, event_ns: int, now_ns: int) -> None:
        """Record that it is tried again now after the event at `event_ns`: the next wait is longer."""
        entry = self._entries.get(key)
        if entry is None or event_ns - entry.updated_ns > self._forget_ns:
            self._entries[key] = _Entry(self._first_ns, now_ns)
        else:
            self._entries[key] = _Entry(min(self._longest_ns, 2 * entry.wait_ns), now_ns)

    def forget(self, prefix: str) -> None:
        """Drop all keys that begin with `prefix`."""
        for key in [key for key in self._entries if key.startswith(prefix)]:
            del self._entries[key]
