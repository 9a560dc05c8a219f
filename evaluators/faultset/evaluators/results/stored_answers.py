"""Stored answers: JSON text that is parsed on access, so that thousands of answers fit in memory."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any

_EVEN_TIMES = "times_even"
"""Key of evenly spaced times, stored as [first, step, count]."""


class StoredAnswer(Mapping[str, Any]):
    """A mapping backed by JSON text.

    Evenly spaced sample times are stored as three numbers and read back as the list `times_ns`.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> StoredAnswer:
        """Convert a mapping of plain data."""
        if isinstance(content, StoredAnswer):
            return content
        return cls(answer_text(content))

    def __getitem__(self, key: str) -> Any:
        return _parse(self.text)[key]

    def __iter__(self) -> Iterator[str]:
        return iter(_parse(self.text))

    def __len__(self) -> int:
        return len(_parse(self.text))

    def __repr__(self) -> str:
        return f"StoredAnswer({self.text[:60]!r})"

    def __hash__(self) -> int:
        return hash(self.text)


def answer_text(content: Mapping[str, Any]) -> str:
    """Return plain data as compact JSON."""
    stored = dict(content)
    times = stored.get("times_ns")
    if times and len(times) > 2:
        step = times[1] - times[0]
        if times == list(range(times[0], times[0] + step * len(times), step)):
            del stored["times_ns"]
            stored[_EVEN_TIMES] = [times[0], step, len(times)]
    return json.dumps(stored, separators=(",", ":"))


@functools.lru_cache(maxsize=32)
def _parse(text: str) -> dict[str, Any]:
    content = json.loads(text)
    if _EVEN_TIMES in content:
        first, step, count = content.pop(_EVEN_TIMES)
        content["times_ns"] = list(range(first, first + step * count, step))
    return content
