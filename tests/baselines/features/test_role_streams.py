"""Streams of one kind of signal of each service."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from faultset.baselines.features.held_out import read_held_out
from faultset.baselines.features.role_streams import (
    Steps,
    excess_surprise,
    read_steps,
    span_of_recent,
    stream_service_roles,
    stream_services,
    stream_signals,
    sum_recent,
)


def test_streams_hold_the_largest_deviation_of_their_series(example, faulty) -> None:
    view = example.view(faulty)
    result = read_held_out(view)
    assert result is not None
    role = [view.catalogue.role_of(metric) for _, metric in result.windows.series]
    owner = result.windows.services
    streams = stream_service_roles(view, result)
    assert streams.names == tuple(sorted(set(zip(owner, role, strict=True))))
    for column, name in enumerate(streams.names):
        values = [place for place, pair in enumerate(zip(owner, role, strict=True)) if pair == name]
        np.testing.assert_allclose(streams.values[:, column], np.log1p(np.abs(result.z[:, values]).max(axis=1)))
    assert len(stream_services(result).names) == len(set(owner))
    assert {signal for _, signal in stream_signals(view, result).names} <= {
        "resources",
        "network",
        "traffic",
        "quality",
        "state",
    }
    assert len(streams.both) == len(streams.normal) + len(streams.values)


def test_an_excess_is_as_surprising_as_its_binomial_tail() -> None:
    result = excess_surprise(np.array([[0], [3]]), np.array([[10], [10]]), np.array([0.05]))
    assert result[:, 0] == pytest.approx([0.0, -np.log10(stats.binom.sf(2, 10, 0.05))])


def test_rows_are_counted_in_the_step_in_which_they_fall(example, faulty) -> None:
    steps = Steps(start_ns=100, step_ns=10, recorded=np.arange(4), healthy=2, view_end_ns=138)
    assert steps.of(np.array([99, 100, 109, 110, 137, 138])).tolist() == [-1, 0, 0, 1, 3, -1]
    assert steps.times_ns.tolist() == [130, 138]
    keys = np.array([0, 1, -1, 1])
    assert steps.counts(np.array([100, 101, 102, 131]), keys, 2).tolist() == [[1, 1], [0, 0], [0, 0], [0, 1]]
    view = example.view(faulty)
    assert read_steps(view).times_ns[-1] == view.window[1]


def test_sums_reach_back_five_steps() -> None:
    counts = np.arange(1, 9)[:, None]
    assert sum_recent(counts)[:, 0].tolist() == [1, 3, 6, 10, 15, 20, 25, 30]


def test_recent_durations_reach_from_the_first_to_the_last_step_with_a_row() -> None:
    counts = np.random.default_rng(3).binomial(3, 0.15, (60, 4))
    for steps in (1, 5, 10):
        durations = span_of_recent(counts, steps)
        for step in range(60):
            for kind in range(4):
                result = np.flatnonzero(counts[max(step - steps + 1, 0) : step + 1, kind])
                assert durations[step, kind] == (result[-1] - result[0] if len(result) else 0)
