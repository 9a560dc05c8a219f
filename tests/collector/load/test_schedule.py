"""The load's schedule: the same seed asks the same, at any rate."""

from __future__ import annotations

import numpy as np

from faultset.collector.apps import load_app
from faultset.collector.load.schedule import Schedule


def arrivals(seed: int, count: int = 2000) -> list:
    schedule = Schedule(load_app("hotel"), "default", seed)
    return [schedule.next() for _ in range(count)]


def test_the_same_seed_gives_the_same_arrivals_and_requests() -> None:
    assert arrivals(5, 300) == arrivals(5, 300)
    assert arrivals(5, 300) != arrivals(6, 300)


def test_gaps_are_exponential_with_mean_one_and_shares_are_the_mix() -> None:
    drawn = arrivals(1)
    gaps = np.array([arrival.gap for arrival in drawn])
    assert 0.93 < gaps.mean() < 1.07
    assert 0.90 < gaps.std() < 1.10
    assert 0.60 - 0.04 < np.mean([arrival.path == "/hotels" for arrival in drawn]) < 0.60 + 0.04
    assert 0.08 < np.mean([arrival.path == "/user" for arrival in drawn]) < 0.12


def test_endpoints_are_named_by_method_and_path() -> None:
    schedule = Schedule(load_app("hotel"), "default", 0)
    assert schedule.endpoints == ("GET /hotels", "GET /recommendations", "POST /user", "POST /reservation")
