"""PDiagnose in RCAEval's form: raw counts of exceedances."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.baselines.methods.localization.multimodal.pdiagnose_rcaeval import (
    log_counts,
    metric_counts,
    slow_count,
    totals,
    upper_limits,
)

PATTERN = np.array([0, 2, 1, -1, 0, 2, 1, -1], dtype=float)
CALM = np.array([0, 0, 1, -1, 0, 0, 1, -1], dtype=float)
REFERENCE = np.stack([10 + PATTERN, 50 + CALM, 20 + PATTERN, 100 + PATTERN], axis=1)
VALUES = np.array([(10, 30, 31, 30), (50, 50, 51, 49), (21, 21, 40, 41), (100, 10, 9, 10)], dtype=float).T
SERVICES = ["cart", "cart", "front", "db"]


CART, FRONT, DB = 10 + PATTERN, 30 + PATTERN, np.full(8, 5.0)


SLOW = {"cart": [50.0, 55, 11], "front": [70.0, 75, 31], "db": [5.0, 5, 5]}


def spans_of(usual: np.ndarray, service: str) -> tuple[np.ndarray, np.ndarray]:
    durations = np.concatenate([usual, SLOW[service]])
    return durations, np.arange(len(durations)) < len(usual)


def test_published_form_counts_raw_exceedances() -> None:
    assert upper_limits(REFERENCE)[[0, 2, 3]] == pytest.approx([14.0857, 24.0857, 104.0857], abs=1e-4)
    assert upper_limits(FRONT[:, None]) == pytest.approx([34.0857], abs=1e-4)
    metric = metric_counts(REFERENCE, VALUES, SERVICES)
    assert metric == {"cart": 3, "front": 2, "db": 0}
    lines = [
        ("front", "error: slow client"),
        ("cart", "connection error"),
        ("cart", "request failed"),
        ("front", "ERROR upstream timeout"),
        ("db", "ok"),
    ]
    log = log_counts(*(list(column) for column in zip(*lines, strict=True)))
    assert log == {"front": 1, "cart": 2, "db": 0}
    trace = {
        service: slow_count(*spans_of(usual, service))
        for service, usual in (("cart", CART), ("front", FRONT), ("db", DB))
    }
    assert trace == {"cart": 2, "front": 2, "db": 3}
    assert totals([metric, log, trace]) == {"cart": 35, "front": 25, "db": 15}


def test_a_series_that_never_moves_counts_with_every_sample() -> None:
    assert metric_counts(np.full((8, 1), 5.0), np.full((4, 1), 5.0), ["cart"]) == {"cart": 4}
