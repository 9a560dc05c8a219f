"""PDiagnose: votes compared with results by hand, and answers on examples."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from faultset.baselines.features.abnormal_traces import span_limits
from faultset.baselines.features.log_lines import log_excess
from faultset.baselines.features.metric_alarms import kpi_flags
from faultset.baselines.features.windows import cut_windows
from faultset.baselines.methods.localization import pdiagnose
from faultset.baselines.methods.localization.pdiagnose import PDiagnose, PDiagnoseDetector, vote
from faultset.core.times import SECOND_NS

PATTERN = np.array([0, 2, 1, -1, 0, 2, 1, -1], dtype=float)
CALM = np.array([0, 0, 1, -1, 0, 0, 1, -1], dtype=float)
REFERENCE = np.stack([10 + PATTERN, 50 + CALM, 20 + PATTERN, 100 + PATTERN], axis=1)
VALUES = np.array([(10, 30, 31, 30), (50, 50, 51, 49), (21, 21, 40, 41), (100, 10, 9, 10)], dtype=float).T


CART, FRONT, DB = 10 + PATTERN, 30 + PATTERN, np.full(8, 5.0)


SLOW = {"cart": [50.0, 55, 11], "front": [70.0, 75, 31], "db": [5.0, 5, 5]}


def spans_of(usual: np.ndarray, service: str) -> tuple[np.ndarray, np.ndarray]:
    durations = np.concatenate([usual, SLOW[service]])
    return durations, np.arange(len(durations)) < len(usual)


def test_votes_of_the_worked_example() -> None:
    flags = kpi_flags(REFERENCE, VALUES, window=4).sum(axis=0)
    metric = {"cart": float(flags[0] + flags[1]), "front": float(flags[2]), "db": float(flags[3])}
    assert metric == {"cart": 3, "front": 2, "db": 3}
    log = log_excess({"cart": 2, "front": 1, "db": 0}, {"front": 1}, 0.5)
    assert log == {"cart": 2, "front": 0.5, "db": 0}
    exclusive = {"cart": slow(CART, "cart"), "front": slow(np.full(8, 20.0), "front", own=20), "db": slow(DB, "db")}
    assert exclusive == {"cart": 2, "front": 0, "db": 0}
    assert vote([metric, log, exclusive]) == pytest.approx({"cart": 2.175, "front": 0.450, "db": 0.375})
    inclusive = {"cart": slow(CART, "cart"), "front": slow(FRONT, "front"), "db": slow(DB, "db")}
    assert vote([metric, log, inclusive]) == pytest.approx({"cart": 1.675, "front": 0.950, "db": 0.375})


def slow(usual: np.ndarray, service: str, own: float | None = None) -> int:
    durations, healthy = spans_of(usual, service)
    if own is not None:
        durations = np.full(len(durations), float(own))
    return int(
        (
            (durations > span_limits(np.zeros(len(durations), dtype=np.int64), durations, healthy, sigmas=3.0))
            & ~healthy
        ).sum()
    )


def test_a_source_without_counts_has_no_say() -> None:
    assert vote([{"a": 0.0, "b": 0.0}, {"a": 1.0}]) == {"a": 1.0, "b": 0.0}


def test_a_source_that_counts_no_more_than_its_reference_has_no_say() -> None:
    assert pdiagnose.excess_over_reference({"a": 12.0, "b": 10.0}, {"a": 20.0, "b": 20.0}, 0.5) == {}
    assert pdiagnose.excess_over_reference({"a": 52.0, "b": 10.0}, {"a": 20.0, "b": 20.0}, 0.5) == {"a": 42.0, "b": 0.0}


@pytest.mark.parametrize("span_time", ["exclusive", "inclusive"])
def test_all_sources_point_at_the_target_of_the_example(span_time, example, faulty) -> None:
    label = example.label(faulty)
    ranking = PDiagnose(span_time=span_time).localize(example.view(faulty), int(label.inject_start_ns) + 4_000_000_000)
    assert ranking.ordered[0] == label.targets[0]
    assert {"anomalous samples", "slow or failed spans"} <= {item.detail for item in ranking.evidence}


def test_trigger_names_the_series_in_its_queue(example, faulty) -> None:
    detection = PDiagnoseDetector().detect(example.view(faulty))
    assert detection.alarm_ns is not None
    assert example.label(faulty).targets[0] in {item.service for item in detection.evidence}


def test_the_moving_average_at_the_alarm_follows_the_samples_right_before_it(monkeypatch) -> None:
    # A continuing trend is not a jump, even long after the reference.
    steps = pd.date_range("2025-01-01", periods=120, freq="1s", tz="UTC")
    trend = np.arange(120.0)[:, None]
    frame = pd.DataFrame(trend, index=steps, columns=pd.MultiIndex.from_tuples([("geo", "rss")]))
    start_ns = steps.as_unit("ns").asi8[0]
    since_reference, since_alarm = (
        cut_windows(
            frame,
            step_ns=SECOND_NS,
            reference_end_ns=start_ns + 60 * SECOND_NS,
            values_start_ns=start_ns + at * SECOND_NS,
        )
        for at in (60, 100)
    )
    monkeypatch.setattr(pdiagnose, "localization_windows", lambda *_, **__: since_reference)
    episode: Any = SimpleNamespace(reference=(start_ns, start_ns + 60 * SECOND_NS))
    flags = pdiagnose._flag_test_window(episode, since_alarm, "and")
    assert flags.shape == since_alarm.values.shape
    assert not flags.any()
    torn = kpi_flags(since_alarm.reference, since_alarm.values, window=10, combine="and")
    assert torn[:10].any()
