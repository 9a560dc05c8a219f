"""Answers of Jaeger's query API: how many traces one holds, and those that have not come before.

A trace comes again with every service in it, and parsing all of them again takes longer than anything else that is done
with spans. So an answer is cut into its traces first, and what is the same byte for byte is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from faultset.collector.platforms.kubernetes.telemetry.endpoints import parsed
from faultset.core.errors import PlatformError

PATH = "/api/traces"
# no text within a JSON string can look like this: its quotes would be escaped
_BEGIN = re.compile(rb'\{"traceID":"[0-9a-fA-F]+","spans":\[')

Traces = Sequence[Mapping[str, Any]]


class KnownTraces:
    """Tells traces that are new from those that came in an earlier answer."""

    def __init__(self) -> None:
        self._known: set[int] = set()

    def new_traces(self, body: bytes, name: str, *, fewer_than: int) -> tuple[int, Traces]:
        """Return how many traces an answer holds, and those of them that are new.

        The last trace of an answer always counts as new, and all traces do where a server formats its answers in
        another way. An answer that is too full is left alone, for it will be asked for again in parts.

        Parameters
        ----------
        body
            The answer.
        name
            The server's name, for messages.
        fewer_than
            How many traces are too many; none is returned then.

        Raises
        ------
        CutAnswer
            The answer is not whole.
        PlatformError
            The server refuses.
        """
        begins = [match.start() for match in _BEGIN.finditer(body)]
        if len(begins) >= fewer_than:
            return len(begins), []
        parts = [body[begin:end] for begin, end in pairwise(begins)]
        marks = [hash(part) for part in parts]
        new = [part for part, mark in zip(parts, marks, strict=True) if mark not in self._known]
        left_out = len(parts) - len(new)
        rest = b"".join((body[: begins[0]], *new, body[begins[-1] :])) if left_out else body
        found = traces_of(rest, name)
        self._known.update(marks)
        count = len(found) + left_out
        return count, found if count < fewer_than else []


def traces_of(body: bytes, name: str) -> Traces:
    """Return the traces of an answer; raise CutAnswer or PlatformError as `KnownTraces.new_traces` does."""
    answer = parsed(body, name, PATH)
    if answer.get("errors"):
        raise PlatformError(f"{name} refuses the traces: {answer['errors'][0]}")
    return answer.get("data") or []
