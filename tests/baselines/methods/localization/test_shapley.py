"""ShapleyIQ: segments and shares of delay compared with results by hand."""

from __future__ import annotations

import itertools
from math import factorial

import numpy as np
import pytest

from faultset.baselines.methods.localization.shapley import ShapleyIQ, share_delays, split_spans
from tests.baselines.conversations import SECOND, START, conversation, linked, spoken


def test_a_span_without_calls_is_one_segment_and_overlapping_calls_leave_one_gap() -> None:
    starts, durations = np.array([0, 2, 4, 20]), np.array([10, 4, 5, 3])
    segments = split_spans(starts, durations, np.array([-1, 0, 0, -1]))
    found = list(zip(segments.row.tolist(), segments.start_ns.tolist(), segments.end_ns.tolist(), strict=True))
    assert found == [(0, 0, 2), (0, 9, 10), (1, 2, 6), (2, 4, 9), (3, 20, 23)]


def test_segments_of_random_trees_cover_what_callees_leave() -> None:
    rng = np.random.default_rng(0)
    starts = np.concatenate([np.zeros(3, dtype=int), rng.integers(-5, 90, 60)])
    durations = np.concatenate([np.full(3, 100), rng.integers(0, 40, 60)])
    parents = np.concatenate([np.full(3, -1), rng.integers(0, 3, 60)])
    segments = split_spans(starts, durations, parents)
    for parent in range(3):
        free = np.ones(100, dtype=bool)
        for child in np.flatnonzero(parents == parent):
            free[max(0, starts[child]) : max(0, starts[child] + durations[child])] = False
        rows = segments.row == parent
        assert (segments.end_ns - segments.start_ns)[rows].sum() == free.sum()


def test_shares_are_shapley_values_of_the_time_that_removing_delays_saves() -> None:
    ends, delays = np.array([10.0, 9.0, 7.0]), np.array([6.0, 2.0, 4.0])

    def saved(removed: frozenset[int]) -> float:
        # The delays are in parallel: an instant is only saved if all delays that cover it are removed.
        covers = [set(np.arange(end - delay, end).tolist()) for end, delay in zip(ends, delays, strict=True)]
        kept = set().union(*(covers[place] for place in range(3) if place not in removed))
        return float(len(set().union(*covers) - kept))

    values = np.zeros(3)
    for order in itertools.permutations(range(3)):
        for place, player in enumerate(order):
            before = frozenset(order[:place])
            values[player] += (saved(before | {player}) - saved(before)) / factorial(3)
    assert share_delays(np.zeros(3, dtype=int), ends, delays) == pytest.approx(values)


def test_delays_of_different_requests_do_not_share() -> None:
    shares = share_delays(np.array([0, 1, 0]), np.array([5.0, 5.0, 9.0]), np.array([2.0, 3.0, 4.0]))
    assert shares == pytest.approx([2.0, 3.0, 4.0])


def test_the_slow_store_gets_the_delay_of_its_callers() -> None:
    view = spoken(spans=linked(conversation(slow_from=30)))
    ranking = ShapleyIQ().localize(view, START + 31 * SECOND)
    assert ranking.ordered[0] == "db"
    assert 300 < ranking.scores["db"] < 500
    assert ShapleyIQ().localize(spoken(spans=linked(conversation())), START + 31 * SECOND).scores.get("db", 0.0) < 10
