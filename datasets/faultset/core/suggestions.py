"""Suggest names for a misspelled one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from faultset.core.errors import UsageError


def suggest(name: str, candidates: Iterable[str]) -> str:
    """Return the remedy for an unknown name: similar names, or else up to 12 of the existing ones.

    Examples
    --------
    >>> suggest("hotle", ["hotel", "social"])
    'did you mean "hotel"?'
    >>> suggest("x", ["hotel", "social"])
    'choose one of hotel, social'
    """
    names = sorted(set(candidates))
    folded = {candidate.lower(): candidate for candidate in names}
    close = difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(f'"{folded[match]}"' for match in close) + "?"
    if not names:
        return "there are none to choose from"
    if len(names) <= 12:
        return "choose one of " + ", ".join(names)
    return f"choose one of {', '.join(names[:12])} and {len(names) - 12} more"


def unknown_name(kind: str, name: str, names: Iterable[str]) -> UsageError:
    """Return the error for a name that does not exist.

    Examples
    --------
    >>> str(unknown_name("app", "hotle", ["hotel"]))
    'unknown app "hotle"; did you mean "hotel"?'
    """
    return UsageError(f'unknown {kind} "{name}"; {suggest(name, names)}')
