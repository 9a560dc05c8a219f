"""What a place must have to run episodes, as rows that say what was found and how to mend it."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]


def requirement(check: str, ok: bool, found: str, remedy: str, *, needed: bool = True) -> Row:
    """Return one row.

    Parameters
    ----------
    check
        What was looked at.
    found
        What there is; where something is not needed, also what is lost without.
    remedy
        How to mend it; left out where nothing is to be mended.
    needed
        Whether episodes cannot run without.
    """
    return {"check": check, "ok": ok, "needed": needed, "found": found, "remedy": "" if ok else remedy}


def unmet(rows: list[Row]) -> list[Row]:
    """Return the rows for which episodes cannot run."""
    return [row for row in rows if row["needed"] and not row["ok"]]
