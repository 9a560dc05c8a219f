"""The rate rule on logs: how surprising counts are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from faultset.baselines.methods.detection.deeplog import DeepLogMarkovDetector
from faultset.baselines.methods.rules.log_rules import LogRateDetector, count_surprise

SECOND = 1_000_000_000


def test_a_count_is_as_surprising_as_its_negative_binomial_tail() -> None:
    healthy = np.tile([[4], [6], [5]], (20, 1))
    windows, total = 60 / 5, 300 / 60 * 60 / 5
    rate = (total + 0.5) / windows
    law = stats.nbinom(rate * windows, 1 / (1 + 1 / windows))
    asked = np.array([[20], [0], [5]])
    expected = [-np.log10(2 * law.sf(19)), np.log10(2 * law.cdf(0)), 0.0]
    assert count_surprise(healthy, asked)[:, 0] == pytest.approx(expected, abs=1e-6)


def test_counts_that_scatter_are_less_surprising() -> None:
    rng = np.random.default_rng(0)
    steady, wild = rng.poisson(20, (50, 1)), rng.negative_binomial(2, 2 / 22, (50, 1))
    asked = np.array([[60]])
    assert count_surprise(steady, asked)[0, 0] > 4 > count_surprise(wild, asked)[0, 0] > 0


def test_the_more_lines_of_a_new_template_the_more_surprising() -> None:
    found = count_surprise(np.zeros((40, 1), dtype=int), np.arange(6)[:, None])[:, 0]
    assert found[0] == 0.0
    assert (np.diff(found[1:]) > 0).all()
    assert found[5] > 4


@pytest.mark.parametrize("detector", [LogRateDetector(), DeepLogMarkovDetector()])
def test_the_line_that_complains_is_the_evidence(detector, example, faulty) -> None:
    found = detector.detect(example.view(faulty))
    label = example.label(faulty)
    assert found.alarm_ns is not None
    assert found.alarm_ns > label.inject_start_ns
    assert label.targets[0] in {item.service for item in found.evidence}
    assert any("deadline exceeded" in item.subject for item in found.evidence)


def test_a_service_that_falls_silent_is_reported(example, alter) -> None:
    healthy = next(episode for episode in example.episodes if not example.label(episode).fault)
    view = example.view(healthy)
    cut = view.reference[1] + 20 * SECOND

    def silence(rows: pa.Table) -> pa.Table:
        times = rows["time"].cast("int64").to_numpy()
        mine = np.array(rows["service"].to_pylist()) == "geo"
        return rows.filter(pa.array((times < cut) | ~mine))

    assert LogRateDetector().detect(view).alarm_ns is None
    found = LogRateDetector().detect(alter(healthy, {"logs": silence}))
    assert found.alarm_ns is not None
    assert found.alarm_ns > cut
    assert found.evidence[0].service == "geo"
    assert "fewer" in found.evidence[0].detail
