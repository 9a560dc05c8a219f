"""The traversal of the call graph: who is ill, and who of the ill explains the others."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from faultset.baselines.features.windows import Windows
from faultset.baselines.methods.localization.graph_traversal import MOST_Z, explained, suffering
from faultset.core.times import SECOND_NS

ALARM_NS = 30 * SECOND_NS


def windows(**series: list[float]) -> Windows:
    """Twenty healthy steps, then the given ones up to step 40; NaN is a stopped series."""
    rng = np.random.default_rng(0)
    values = np.array(list(series.values()), dtype=float).T
    return Windows(
        series=tuple((name, "latency") for name in series),
        step_ns=SECOND_NS,
        reference=1 + 0.1 * rng.standard_normal((20, len(series))),
        values=values,
        absent=np.isnan(values),
        times_ns=SECOND_NS * np.arange(21, 21 + len(values)),
    )


def moved(upwards: bool = True, **series: list[float]) -> dict[str, float]:
    return suffering(windows(**series), range(len(series)), "front", ALARM_NS, upwards=upwards)


CALM = [1.0, 1.1, 0.9, 1.0, 1.1] * 4
SLOW = CALM[:10] + [9.0] * 10


def test_a_service_that_is_slow_with_the_front_end_is_ill_and_a_calm_one_is_not():
    found = moved(front=SLOW, slow=SLOW, calm=CALM)
    assert found["slow"] > 10
    assert found["calm"] < 3


def test_what_moves_against_the_front_end_does_not_count():
    assert moved(front=SLOW, other=[9.0] * 10 + CALM[:10])["other"] == 0


def test_a_service_whose_series_stops_at_the_alarm_is_as_ill_as_any():
    assert moved(front=SLOW, dead=CALM[:10] + [np.nan] * 10)["dead"] == MOST_Z


def test_one_missing_sample_is_no_stop():
    assert moved(front=SLOW, once=[*CALM[:12], np.nan, *CALM[13:]])["once"] < 3


@pytest.mark.parametrize("upwards", [True, False])
def test_only_some_roles_are_ill_when_they_fall(upwards):
    assert (moved(upwards, front=CALM[:10] + [0.0] * 10)["front"] > 3) is not upwards


def test_a_callee_that_explains_ill_callers_comes_before_them_and_others_are_left_out():
    found = explained(
        [("front", "cart"), ("cart", "db"), ("x", "y")], {"front": 5.0, "cart": 5.0, "db": 5.0, "y": 90}, "front"
    )
    assert sorted(found, key=lambda name: -found[name]) == ["db", "cart", "front"]


def test_scores_are_added_in_the_order_of_names_so_that_they_are_the_same_in_every_process():
    names = [f"service-{number}" for number in range(40)]
    ill = {name: 1.1**number for number, name in enumerate(names)}
    calls = [(caller, callee) for caller, callee in itertools.pairwise(names)]
    found = explained(calls, ill, names[0])
    assert found[names[-1]] == sum(float(np.log1p(ill[name])) for name in sorted(names))
