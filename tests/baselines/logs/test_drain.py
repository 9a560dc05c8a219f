"""Templates of log lines."""

from __future__ import annotations

from faultset.baselines.logs.templates import WILDCARD, Drain, split_variables


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
