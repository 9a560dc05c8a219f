"""Nearness of alarms and faults."""

from __future__ import annotations

import math

import pytest

from faultset.evaluators.scoring.affiliation import compute_affiliation

FAULTS = [(5, 12), (40, 44)]


def test_affiliation_agrees_with_the_reference_implementation():
    # `vus.affiliation.metrics.pr_from_events` of vus 0.0.6, which integrates exactly
    precision, recall = compute_affiliation(FAULTS, [(3, 9), (20, 24)], (0, 60))
    assert precision == pytest.approx(0.592308, abs=1e-3)
    assert recall == pytest.approx(0.475275, abs=1e-3)


def test_a_zone_without_an_alarm_lowers_only_the_recall():
    precision, recall = compute_affiliation(FAULTS, [(5, 12)], (0, 60))
    assert (precision, recall) == (1.0, 0.5)


def test_silence_scores_0_and_no_fault_has_no_score():
    assert compute_affiliation(FAULTS, [], (0, 60)).f1 == 0.0
    assert math.isnan(compute_affiliation([], [(1, 2)], (0, 60)).f1)
