"""Detectors that read logs: templates, surprising counts, lines out of order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from faultset.baselines.features.step_counts import Steps, excess_surprise, recent_sums, steps_of
from faultset.baselines.logs.sequences import NextTemplate
from faultset.baselines.logs.templates import template_lines
from faultset.baselines.methods.detection.deeplog import DeepLogMarkovDetector, unexpected_lines
from faultset.baselines.methods.rules.log_rates import LogRateDetector, count_surprise

SECOND = 1_000_000_000


def logs(rows: Sequence[tuple[int, str | None, str]]) -> pa.Table:
    times, services, messages = zip(*rows, strict=True)
    return pa.table(
        {
            "time": pa.array(times, pa.timestamp("ns", tz="UTC")),
            "service": pa.array(services, pa.string()).dictionary_encode(),
            "message": pa.array(messages, pa.string()),
        }
    )


def test_lines_that_differ_in_numbers_share_a_template() -> None:
    rows = [
        (3, "b", "took 17 ms id=4bf92f3577b34da6"),
        (1, "a", "took 4 ms id=00f067aa0ba902b7"),
        (2, None, "of nobody"),
        (5, "stranger", "of a stranger"),
        (4, "a", "connection refused"),
    ]
    lines = template_lines(logs(rows), ("b", "a"))
    assert lines.times_ns.tolist() == [1, 3, 4]
    assert lines.services.tolist() == [0, 1, 0]
    assert lines.templates.tolist() == [0, 0, 1]
    assert lines.texts == ("took <*> ms id=<*>", "connection refused")


def test_a_template_does_not_depend_on_later_lines() -> None:
    words = ["alpha beta gamma delta", "alpha beta gamma epsilon", "alpha beta 7 delta", "other", "alpha x y z"]
    rows = [(time, "a", words[time % 5]) for time in range(20)]
    whole, part = (template_lines(logs(rows[:count]), ("a",)) for count in (20, 8))
    np.testing.assert_array_equal(whole.templates[:8], part.templates)


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


@pytest.mark.parametrize("order", [1, 2, 3])
def test_unexpected_lines_are_those_of_the_sequence_model(order: int) -> None:
    rng = np.random.default_rng(order)
    templates = rng.integers(0, 6, 400)
    groups = rng.integers(0, 3, 400)
    healthy = np.arange(400) < 250
    found = unexpected_lines(templates, groups, healthy, order=order, top=2, leave_out=False)
    for group in range(3):
        rows = np.flatnonzero(groups == group)
        model = NextTemplate(order=order, top=2).fit(templates[rows[healthy[rows]]].tolist())
        np.testing.assert_array_equal(found[rows], model.misses(templates[rows].tolist(), after=()))


def test_the_vector_of_the_reference_gives_the_known_misses() -> None:
    letters = "ABCABCABDABC" + "ABCABCABDXXCXAXABC"
    templates = np.array(["ABCDX".index(letter) for letter in letters])
    healthy = np.arange(len(letters)) < 12
    groups = np.zeros(len(letters), dtype=np.int64)
    missed = unexpected_lines(templates, groups, healthy, order=1, top=1, leave_out=False)[12:]
    assert missed.reshape(6, 3).mean(axis=1) == pytest.approx([0, 0, 1 / 3, 1, 1, 1 / 3])


def test_a_healthy_line_does_not_vouch_for_itself() -> None:
    templates = np.array([0, 1, 0, 1, 0, 1, 0, 2, 0, 1])
    groups, healthy = np.zeros(10, dtype=np.int64), np.ones(10, dtype=bool)
    held_out = unexpected_lines(templates, groups, healthy, order=1)
    kept = unexpected_lines(templates, groups, healthy, order=1, leave_out=False)
    assert held_out[7]
    assert not held_out[9]
    assert kept.sum() <= held_out.sum()


def test_no_lines_are_no_trouble() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    assert len(unexpected_lines(nothing, nothing, nothing.astype(bool))) == 0


def test_an_excess_is_as_surprising_as_its_binomial_tail() -> None:
    found = excess_surprise(np.array([[0], [3]]), np.array([[10], [10]]), np.array([0.05]))
    assert found[:, 0] == pytest.approx([0.0, -np.log10(stats.binom.sf(2, 10, 0.05))])


def test_rows_are_counted_in_the_step_in_which_they_fall(example, faulty) -> None:
    steps = Steps(start_ns=100, step_ns=10, count=4, healthy=2, view_end_ns=138)
    assert steps.of(np.array([99, 100, 109, 110, 137, 138])).tolist() == [-1, 0, 0, 1, 3, -1]
    assert steps.times_ns.tolist() == [130, 138]
    keys = np.array([0, 1, -1, 1])
    assert steps.counts(np.array([100, 101, 102, 131]), keys, 2).tolist() == [[1, 1], [0, 0], [0, 0], [0, 1]]
    view = example.view(faulty)
    assert steps_of(view).times_ns[-1] == view.view[1]


def test_sums_reach_back_five_steps() -> None:
    counts = np.arange(1, 9)[:, None]
    assert recent_sums(counts)[:, 0].tolist() == [1, 3, 6, 10, 15, 20, 25, 30]


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
