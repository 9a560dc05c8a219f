"""Templates of log lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from faultset.baselines.features.log_lines import WILDCARD, Drain, count_shapes, split_variables, template_lines
from tests.baselines.conversations import SECOND, START, spoken


def test_variables_are_taken_out_of_messages() -> None:
    masked, numbers = split_variables("TRC GET /cart/7f3a9c21 from 10.0.0.4:8083 took 12.5ms, status 200, v1.2.3")
    assert masked == f"TRC GET /cart/{WILDCARD} from {WILDCARD} took {WILDCARD}ms, status {WILDCARD}, v1.2.3"
    assert numbers == [12.5, 200.0]


def test_words_that_merely_hold_digits_stay() -> None:
    assert split_variables("s3 http2 facade deadbeef") == ("s3 http2 facade deadbeef", [])


def test_template_id_is_stable_while_its_words_become_wildcards() -> None:
    drain = Drain()
    first = drain.add("user alice logged in")
    assert drain.add("user bob logged in") == first
    assert drain.templates[first].text == f"user {WILDCARD} logged in"
    assert drain.add("user alice logged in") == first
    assert drain.templates[first].count == 3


def test_messages_of_other_length_or_first_word_have_their_own_template() -> None:
    drain = Drain()
    ids, _ = drain.add_all(["job started now", "job started", "worker started now", "job ended today", ""])
    assert ids == [0, 1, 2, 3, 4]


def test_full_nodes_share_one_branch() -> None:
    drain = Drain(max_children=2)
    ids, _ = drain.add_all([f"{word} is the first of many words" for word in ("a", "b", "c", "d")])
    assert ids == [0, 1, 2, 2]


def test_lines_count_by_service_and_by_how_they_begin() -> None:
    def line(second: float, service: str, message: str) -> dict[str, Any]:
        time = START + round(second * SECOND)
        return {"time": time, "service": service, "pod": "p", "container": "c", "message": message}

    rows = [
        line(0.5, "cart", "got item 17"),
        line(0.6, "cart", "got item 4"),
        line(1.5, "cart", "got item 9"),
        line(1.5, "db", "got item 9"),
        line(39.9, "db", "connection 0x7f3a lost"),
        line(50.0, "db", "too late"),
        line(3.0, "stranger", "hello"),
    ]
    result = count_shapes(spoken(logs=rows), 1.0)
    assert result.shapes == (("cart", "got item <*>"), ("db", "connection <*> lost"), ("db", "got item <*>"))
    assert result.counts[:2].tolist() == [[2.0, 0.0, 0.0], [1.0, 0.0, 1.0]]
    assert result.counts[39].tolist() == [0.0, 1.0, 0.0]
    assert count_shapes(spoken(), 1.0).counts.shape == (40, 0)


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
