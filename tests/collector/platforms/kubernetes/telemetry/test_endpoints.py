"""The next answer is fetched while the last one is worked on."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from faultset.collector.platforms.kubernetes.telemetry.endpoints import read_ahead


def test_one_answer_is_fetched_beforehand_and_no_more() -> None:
    fetched = [threading.Event() for _ in range(4)]

    def answers() -> Iterator[int]:
        for number, event in enumerate(fetched):
            event.set()
            yield number

    ahead = read_ahead(answers())
    assert next(ahead) == 0
    assert fetched[1].wait(5.0)
    assert not fetched[2].wait(0.05)
    assert list(ahead) == [1, 2, 3]


def test_an_error_comes_in_its_place() -> None:
    def answers() -> Iterator[str]:
        yield "first"
        raise ValueError("cut")

    ahead = read_ahead(answers())
    assert next(ahead) == "first"
    with pytest.raises(ValueError, match="cut"):
        next(ahead)


def test_answers_that_nobody_takes_leave_no_thread() -> None:
    before = threading.active_count()
    ahead = read_ahead(iter("abc"))
    next(ahead)
    ahead.close()
    assert threading.active_count() == before
