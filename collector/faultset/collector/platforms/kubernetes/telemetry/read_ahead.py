"""Reading ahead: a server prepares its next answer while the last one is worked on."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Answer = TypeVar("_Answer")


def read_ahead(answers: Iterator[_Answer]) -> Generator[_Answer, None, None]:
    """Yield what an iterator yields, one answer of which a thread fetches beforehand.

    >>> list(read_ahead(iter("abc")))
    ['a', 'b', 'c']
    """
    with ThreadPoolExecutor(1, "read-ahead") as thread:
        following = thread.submit(next, answers, None)
        while (answer := following.result()) is not None:
            following = thread.submit(next, answers, None)
            yield answer
