"""How far a wrong answer is from the cause in the declared call graph, and of which kind it is."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal

Calls = Sequence[tuple[str, str]]
"""(caller, callee) pairs."""
Miss = Literal["hit", "symptom", "unrelated", "none"]
"""hit: a cause · symptom: a service that depends on a cause, directly or not · unrelated: any other · none: no
answer."""
MISSES: tuple[Miss, ...] = ("hit", "symptom", "unrelated", "none")


def hops(calls: Calls, start: Iterable[str], goals: AbstractSet[str]) -> float:
    """Fewest calls, in either direction, between any of `start` and any of `goals`; infinite where no way leads.

    Examples
    --------
    >>> hops([("web", "cart"), ("cart", "db")], ["web"], {"db"})
    2.0
    """
    neighbours: dict[str, set[str]] = {}
    for caller, callee in calls:
        neighbours.setdefault(caller, set()).add(callee)
        neighbours.setdefault(callee, set()).add(caller)
    waiting = deque((name, 0) for name in start)
    seen = {name for name, _ in waiting}
    while waiting:
        name, distance = waiting.popleft()
        if name in goals:
            return float(distance)
        for neighbour in neighbours.get(name, set()) - seen:
            seen.add(neighbour)
            waiting.append((neighbour, distance + 1))
    return math.inf


def dependents(calls: Calls, causes: AbstractSet[str]) -> frozenset[str]:
    """Services that call a cause, directly or through others: those who feel it."""
    callers: dict[str, set[str]] = {}
    for caller, callee in calls:
        callers.setdefault(callee, set()).add(caller)
    found: set[str] = set()
    waiting = list(causes)
    while waiting:
        new = callers.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return frozenset(found - causes)


def kinds_of_answer(named: AbstractSet[str], causes: AbstractSet[str], calls: Calls) -> Mapping[Miss, float]:
    """Shares of the services that are tied in first place, by what they are to the cause; they add up to one."""
    if not named:
        return {kind: float(kind == "none") for kind in MISSES}
    feeling = dependents(calls, causes)
    hit = len(named & causes) / len(named)
    symptom = len((named - causes) & feeling) / len(named)
    return {"hit": hit, "symptom": symptom, "unrelated": max(0.0, 1.0 - hit - symptom), "none": 0.0}
