"""Did-you-mean sentences for names that are not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from faultset.core.errors import UsageError


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: the closest known names, or all when they are few.

    Examples
    --------
    >>> suggest("hotle", ["hotel", "social"])
    'did you mean "hotel"?'
    >>> suggest("x", ["hotel", "social"])
    'known are hotel, social'
    """
    names = sorted(set(known))
    folded = {candidate.lower(): candidate for candidate in names}
    close = difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(f'"{folded[match]}"' for match in close) + "?"
    if not names:
        return "there are none"
    if len(names) <= 12:
        return "known are " + ", ".join(names)
    return f"known are {', '.join(names[:12])} and {len(names) - 12} more"


def unknown_name(what: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for a name that is not known, to be raised by the caller.

    Examples
    --------
    >>> str(unknown_name("app", "hotle", ["hotel"]))
    'unknown app "hotle"; did you mean "hotel"?'
    """
    return UsageError(f'unknown {what} "{name}"; {suggest(name, known)}')
