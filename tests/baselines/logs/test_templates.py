"""Lines of an episode by their templates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from faultset.baselines.logs.templates import template_lines


def logs(rows: Sequence[tuple[int, str | None, str]]) -> pa.Table:
    times, services, messages = zip(*rows, strict=True)
    return pa.table(
        {
            "time": pa.array(times, pa.timestamp("ns", tz="UTC")),
            "service": pa.array(services, pa.string()).dictionary_encode(),
            "message": pa.array(messages, pa.string()),
        }
    )


def test_lines_that_differ_in_numbers_share_a_template() -> None:
    rows = [
        (3, "b", "took 17 ms id=4bf92f3577b34da6"),
        (1, "a", "took 4 ms id=00f067aa0ba902b7"),
        (2, None, "of nobody"),
        (5, "stranger", "of a stranger"),
        (4, "a", "connection refused"),
    ]
    lines = template_lines(logs(rows), ("b", "a"))
    assert lines.times_ns.tolist() == [1, 3, 4]
    assert lines.services.tolist() == [0, 1, 0]
    assert lines.templates.tolist() == [0, 0, 1]
    assert lines.texts == ("took <*> ms id=<*>", "connection refused")


def test_a_template_does_not_depend_on_later_lines() -> None:
    words = ["alpha beta gamma delta", "alpha beta gamma epsilon", "alpha beta 7 delta", "other", "alpha x y z"]
    rows = [(time, "a", words[time % 5]) for time in range(20)]
    whole, part = (template_lines(logs(rows[:count]), ("a",)) for count in (20, 8))
    np.testing.assert_array_equal(whole.templates[:8], part.templates)
