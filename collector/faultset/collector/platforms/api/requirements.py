"""What a host must have to run episodes, as rows that say what was found and how to fix it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Requirement:
    """One thing that was looked at.

    Attributes
    ----------
    check
        What was looked at.
    ok
        Whether it is as it should be.
    found
        What there is; where something is not needed, also what is lost without.
    remedy
        How to fix it; empty where nothing is wrong.
    needed
        Whether episodes cannot run without.
    """

    check: str
    ok: bool
    found: str
    remedy: str = ""
    needed: bool = True

    def __post_init__(self) -> None:
        if self.ok:
            object.__setattr__(self, "remedy", "")


def unmet(rows: Iterable[Requirement]) -> list[Requirement]:
    """Return the rows for which episodes cannot run."""
    return [row for row in rows if row.needed and not row.ok]
