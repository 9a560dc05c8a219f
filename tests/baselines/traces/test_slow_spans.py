"""The time that an operation spends itself."""

from __future__ import annotations

import numpy as np

from faultset.baselines.traces.spans import exclusive_durations, parent_rows, slow_spans


def test_exclusive_time_leaves_out_children_once() -> None:
    starts = np.array([0, 10, 30, 90, 500])
    durations = np.array([100, 40, 40, 50, 7])
    parents = np.array([-1, 0, 0, 0, -1])
    assert exclusive_durations(starts, durations, parents).tolist() == [100 - 60 - 10, 40, 40, 50, 7]


def test_exclusive_time_keeps_families_apart() -> None:
    starts = np.array([0, 0, 5, 1_000, 1_000])
    durations = np.array([10, 4, 3, 10, 10])
    parents = np.array([-1, 0, 0, -1, 3])
    assert exclusive_durations(starts, durations, parents).tolist() == [3, 4, 3, 0, 10]


def test_parents_are_found_within_their_trace() -> None:
    traces, spans = np.array(["t", "t", "u"], dtype=object), np.array(["a", "b", "a"], dtype=object)
    parents = np.array([None, "a", "b"], dtype=object)
    assert parent_rows(traces, spans, parents).tolist() == [-1, 0, -1]


def test_constant_operation_is_not_slow_by_being_constant() -> None:
    durations = np.array([5.0, 5, 5, 5, 5.7, 5.8])
    found = slow_spans(np.zeros(6, dtype=np.int64), durations, np.arange(6) < 4)
    assert found.tolist() == [False] * 5 + [True]
