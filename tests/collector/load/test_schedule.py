"""The load's schedule: the same seed asks the same, at any rate, and mixes that change."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from faultset.collector.apps import load_app
from faultset.collector.load.schedule import Schedule, parse_mixes
from faultset.core.errors import UsageError


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


def test_a_mix_becomes_another_over_its_time() -> None:
    def logins(elapsed_s: float) -> float:
        schedule = Schedule(load_app("hotel"), "default..standard", 1, horizon_s=100)
        kinds = Counter(schedule.next(elapsed_s).path for _ in range(3000))
        return kinds["/user"] / 3000

    assert logins(0) == pytest.approx(0.10, abs=0.02)
    assert logins(50) == pytest.approx(0.0525, abs=0.02)
    assert logins(1000) == pytest.approx(0.005, abs=0.005)


def test_a_mix_that_the_application_lacks_is_refused() -> None:
    assert parse_mixes("default..standard", load_app("hotel")) == ("default", "standard")
    with pytest.raises(UsageError, match='unknown workload mix "standrad"'):
        parse_mixes("default..standrad", load_app("hotel"))
    with pytest.raises(UsageError, match="may change only once"):
        parse_mixes("default..standard..default", load_app("hotel"))
