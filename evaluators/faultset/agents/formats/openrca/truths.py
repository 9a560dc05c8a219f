"""The true causes of OpenRCA's queries, put together from the rows of an archive.

A row states one cause in full, also where its query asks for several, and what was asked for: the criteria that passed
and failed, as sets of values without names. The other causes are those of other rows of the archive, near in time, with
which the asked values are exactly those of the criteria.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

ASKED = {
    "task_1": ("time",),
    "task_2": ("reason",),
    "task_3": ("component",),
    "task_4": ("time", "reason"),
    "task_5": ("time", "component"),
    "task_6": ("component", "reason"),
    "task_7": ("time", "component", "reason"),
}
_NEAR_S = 3600.0
_MOST_OTHERS = 2
_NUMBERS = {"two": 2, "three": 3, "2": 2, "3": 3}
_COUNT = re.compile(r"\b(two|three|2|3)\b[\w\s,-]{0,60}?\b(?:failures|root causes)\b", re.IGNORECASE)
_COUNT_AFTER = re.compile(r"(?:number of \w+|\w+ count)[^.]{0,80}?\b(?:is|was|of) (two|three|2|3)\b", re.IGNORECASE)
Cause = dict[str, str]


def stated_cause(text: str) -> Cause | None:
    """Return the cause that a row states, None where something is missing."""
    parts = (line.partition(":") for line in text.splitlines())
    found = {name: value.strip() for name, colon, value in parts if colon}
    if not {"component", "reason", "datetime"} <= set(found) or moment(found["datetime"]) is None:
        return None
    return {"time": found["datetime"], "component": found["component"], "reason": found["reason"]}


def causes_of(row: Mapping[str, str], own: Cause, pool: Sequence[Cause]) -> list[Cause] | None:
    """Return all causes that a query asks for; None where the archive does not tell them.

    Parameters
    ----------
    own
        The cause that the row states.
    pool
        The different causes of the archive.
    """
    asked = ASKED[row["task_index"].strip()]
    wanted = {line.strip() for name in ("passed", "failed") for line in row.get(name, "").splitlines() if line.strip()}
    if wanted in (set(), {"N/A"}):
        return [own]
    number = _stated_number(row["instruction"])
    others = [cause for cause in pool if cause != own and _seconds_apart(cause, own) <= _NEAR_S]
    others.sort(key=lambda cause: _seconds_apart(cause, own))
    for more in range(number - 1, _MOST_OTHERS + 1):
        for chosen in itertools.combinations(others, more):
            causes = [own, *chosen]
            if {cause[name] for cause in causes for name in asked} == wanted:
                return causes
    return None


def moment(text: Any) -> datetime | None:
    """Return a time as OpenRCA writes it."""
    try:
        return datetime.strptime(text.strip(), "%Y-%m-%d %H:%M:%S") if isinstance(text, str) else None
    except ValueError:
        return None


def _stated_number(instruction: str) -> int:
    found = _COUNT.search(instruction) or _COUNT_AFTER.search(instruction)
    return _NUMBERS[found[1].lower()] if found else 1


def _seconds_apart(one: Cause, other: Cause) -> float:
    first, second = moment(one["time"]), moment(other["time"])
    return abs((first - second).total_seconds()) if first and second else float("inf")
