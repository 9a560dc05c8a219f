"""Links between series that come with a delay."""

from __future__ import annotations

import numpy as np

from faultset.baselines.stats.dependence import lagged_links


def test_a_delayed_cause_is_linked_and_a_cause_of_the_cause_is_not() -> None:
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(400, 4))
    series = noise.copy()
    for row in range(2, 400):
        series[row, 1] += 0.9 * series[row - 2, 0]
        series[row, 2] += 0.9 * series[row - 1, 1]
    found = lagged_links(series, lags=3)
    assert (0, 2) in found.causes[1]
    assert (1, 1) in found.causes[2]
    assert {(0, 1), (1, 2)} <= found.links
    assert (0, 2) not in found.links
    assert not any(3 in link for link in found.links)


def test_links_within_a_step_have_no_direction_and_constants_none() -> None:
    rng = np.random.default_rng(4)
    series = rng.normal(size=(120, 3))
    series[:, 1] += series[:, 0]
    series[:, 2] = 5.0
    assert lagged_links(series, lags=2).links == {(0, 1), (1, 0)}
    assert lagged_links(series[:5], lags=2).links == frozenset()
