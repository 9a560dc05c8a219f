"""Leases: what is impaired stays so only while somebody keeps asking for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from faultset.collector.agent.errors import AgentError

LONGEST_S = 120.0


class Leases:
    """Ends of leases by pod uid.

    Parameters
    ----------
    clock
        Monotonic seconds, which go on while nobody calls.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._ends: dict[str, tuple[float, float]] = {}

    def grant(self, uid: str, length_s: float) -> None:
        """Begin a lease, or begin it anew; raise AgentError for a length that is none."""
        if isinstance(length_s, bool) or not isinstance(length_s, int | float) or not 0 < length_s <= LONGEST_S:
            raise AgentError(f"a lease lasts more than 0 and at most {LONGEST_S:g} s; found {length_s!r}")
        self._ends[uid] = (self._clock() + length_s, length_s)

    def renew(self, uids: Iterable[str]) -> list[str]:
        """Prolong leases by their length, those that have run out but are still held too; return the unknown."""
        unknown = []
        for uid in uids:
            if uid in self._ends:
                self.grant(uid, self._ends[uid][1])
            else:
                unknown.append(uid)
        return unknown

    def end(self, uid: str) -> None:
        """Forget a lease; nothing happens when there is none."""
        self._ends.pop(uid, None)

    def expired(self) -> list[str]:
        """Return the pods whose lease has run out."""
        now = self._clock()
        return [uid for uid, (end, _) in self._ends.items() if end <= now]
