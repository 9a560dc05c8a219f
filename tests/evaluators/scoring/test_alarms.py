"""Alarms from flags."""

from __future__ import annotations

import numpy as np

from faultset.evaluators.scoring.alarms import (
    events,
    timed_alarms,
)

TRUTH = np.array([0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0])
FLAGS = np.array([0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0])
SCORES = np.array([0.10, 0.20, 0.05, 0.30, 0.90, 0.80, 0.40, 0.70, 0.15, 0.60, 0.01, 0.00])


def test_events_are_half_open_runs():
    assert events(TRUTH) == [(3, 7)]
    assert events(FLAGS) == [(5, 6), (9, 11)]
    assert events([]) == []
    assert events([1, 1]) == [(0, 2)]


def test_timed_alarms_join_across_the_gap_in_nanoseconds():
    times = np.arange(6) * 10 + 100
    assert timed_alarms(times, [0, 1, 0, 1, 0, 1], gap_ns=0) == [(110, 120), (130, 140), (150, 160)]
    assert timed_alarms(times, [0, 1, 0, 1, 0, 1], gap_ns=10) == [(110, 160)]
    assert timed_alarms([], [], gap_ns=0) == []
