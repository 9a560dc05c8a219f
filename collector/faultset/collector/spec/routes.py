"""Match request paths to operations, whose paths may have parameters in braces: `/product/{id}`.

A parameter matches everything except a slash. With a method before the path (`POST /cart`), an operation serves only
that method.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import NamedTuple


class Route(NamedTuple):
    """The operation that serves a path, and the values of its path parameters."""

    operation: str
    values: dict[str, str]


@functools.cache
def _build_pattern(operation: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", operation)
    return re.compile(
        "".join(f"(?P<{piece}>[^/]+)" if index % 2 else re.escape(piece) for index, piece in enumerate(parts))
    )


def find_route(path: str, operations: Iterable[str], method: str | None = None) -> Route | None:
    """Return the operation that serves a path, preferring one without braces; None if there is none.

    Parameters
    ----------
    method
        Method of the request; operations with this method take precedence over operations without a method.
    """
    names = tuple(operations)
    if method is not None:
        route = find_route(f"{method} {path}", names)
        if route is not None:
            return route
    if path in names:
        return Route(path, {})
    for name in names:
        if "{" in name and (match := _build_pattern(name).fullmatch(path)):
            return Route(name, match.groupdict())
    return None
