"""Log anomaly scores learn from healthy lines only."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from faultset.baselines.methods.localization.rmlad import (
    RMLAD,
    LogLines,
    NextTemplate,
    binned_share,
    candidate_series,
    combined_score,
    measure_association,
    parameter_anomalies,
    score_logs,
)


def test_nothing_is_learned_from_lines_after_the_healthy_time() -> None:
    usual = ["a asked", "b found", "c served"] * 40
    for late in (["boom boom boom"] * 60, ["boom boom boom"] * 3 + usual[:57]):
        messages = [*usual, *late]
        lines = LogLines(
            names=("geo",),
            times_ns=np.arange(len(messages)),
            services=np.zeros(len(messages), dtype=np.int64),
            messages=messages,
        )
        result = score_logs(lines, healthy_end_ns=120, start_ns=60, step_ns=30, bins=4)
        assert result.system[:2].tolist() == [0, 0]
        # A new line stays unexpected, even if it is frequent.
        assert result.system[2] == pytest.approx(late[:30].count("boom boom boom") / 30, abs=0.05)
        assert result.unexpected_lines[0][:2] == ("geo", "boom boom boom")


CODES = {letter: code for code, letter in enumerate("ABCDX")}
TRAINING = [CODES[letter] for letter in "ABCABCABDABC"]
TEST = [CODES[letter] for letter in "ABCABCABDXXCXAXABC"]
BINS = np.repeat(np.arange(6), 3)
SHARE = np.array([0, 0, 1 / 3, 1, 1, 1 / 3])


@pytest.mark.parametrize(("top", "expected"), [(1, SHARE), (2, [0, 0, 0, 1, 1, 1 / 3])])
def test_share_of_unexpected_templates_per_bin(top: int, expected: list[float]) -> None:
    model = NextTemplate(order=1, top=top, halve=False).fit(TRAINING)
    assert binned_share(BINS, model.misses(TEST), 6) == pytest.approx(expected)


def test_the_score_is_the_mean_of_templates_and_parameters() -> None:
    result = combined_score(SHARE, np.array([0, 0, 0, 1, 1, 0.0]))
    assert result == pytest.approx([0, 0, 1 / 6, 1, 1, 1 / 6])


def test_a_longer_memory_falls_back_to_a_shorter_one() -> None:
    model = NextTemplate(order=3, top=1, halve=False).fit([0, 1, 2, 0, 1, 2, 0, 1, 2])
    assert model.misses([9, 0, 1], after=(0, 1, 2)).tolist() == [True, True, False]


def test_at_most_half_of_the_templates_count_as_expected() -> None:
    model = NextTemplate(order=1, top=9).fit([0, 1, 0, 1, 0, 2, 0, 3])
    assert model.misses([1, 0, 2, 0, 3], after=(0,)).tolist() == [False, False, False, False, True]


def test_unusual_parameters_are_judged_per_template() -> None:
    count = 40
    templates = np.tile([0, 1], count // 2)
    numbers = [[float(10 + row % 3)] if template == 0 else [] for row, template in enumerate(templates)]
    numbers[-2] = [500.0]
    times = np.arange(count) * 1_000_000_000
    healthy = np.arange(count) < 30
    anomalous, any_numbers = parameter_anomalies(templates, np.zeros(count, dtype=np.int64), times, numbers, healthy)
    assert any_numbers
    assert np.flatnonzero(anomalous).tolist() == [count - 2]


def test_without_parameters_nothing_is_said_about_them() -> None:
    zeros = np.zeros(3, dtype=np.int64)
    _, any_numbers = parameter_anomalies(zeros, zeros, np.arange(3), [[], [], []], np.ones(3, dtype=bool))
    assert not any_numbers


EIGHT = np.array([0, 0, 0, 0, 1, 1, 1, 1], dtype=float)
EIGHT_SERIES = np.array(
    [(1, 1, 1, 1, 5, 5, 5, 5), (1, 1, 1, 5, 5, 5, 5, 5), (0, 0, 0, 0, 0, 0, 0, 7), (1, 2) * 4], dtype=float
)


def test_association_orders_eight_bins_like_the_exact_values() -> None:
    rng = np.random.default_rng(0)
    result = measure_association(EIGHT_SERIES.T, EIGHT, replicates=20, noise=0.1, neighbours=3, rng=rng)
    assert (np.diff(result) < 0).all()


def test_association_finds_a_series_that_lags() -> None:
    rng = np.random.default_rng(1)
    target = rng.normal(size=40)
    late = np.roll(target, 2)[:, None]
    apart, together = (
        measure_association(late, target, replicates=5, noise=0.1, neighbours=3, rng=rng, lag=lag)[0] for lag in (0, 2)
    )
    assert together > apart + 0.5


def test_candidates_are_those_that_moved_unless_they_are_few() -> None:
    z = np.zeros((10, 8))
    z[3, :5] = 4.0
    z[:, 6] = np.linspace(0, 1, 10)
    assert candidate_series(z).tolist() == [True] * 5 + [False] * 3
    assert candidate_series(z[:, 4:]).tolist() == [True, False, True, False]


def test_rmlad_answers_with_the_metrics_that_it_is_named_after(example, faulty) -> None:
    ranking = RMLAD(scope="own").localize(
        example.view(faulty), int(example.label(faulty).inject_start_ns) + 4_000_000_000
    )
    best = max(ranking.metrics, key=lambda key: ranking.metrics[key])
    assert best[0] == ranking.ordered[0]
    assert ranking.metrics[best] == pytest.approx(ranking.scores[best[0]])


def test_rmlad_finds_the_target_and_shows_the_lines(example, faulty) -> None:
    label = example.label(faulty)
    ranking = RMLAD(scope="own").localize(example.view(faulty), int(label.inject_start_ns) + 4_000_000_000)
    assert ranking.ordered[0] == label.targets[0]
    assert any("deadline exceeded" in item.subject for item in ranking.evidence)


def test_rmlad_abstains_when_the_logs_say_nothing_new(example, faulty, alter) -> None:
    def monotonous(table: pa.Table) -> pa.Table:
        return table.set_column(
            table.schema.get_field_index("message"), "message", pa.array(["tick"] * len(table), pa.string())
        )

    def still(table: pa.Table) -> pa.Table:
        # Equal pauses, so that times carry no information.
        start = int(example.view(faulty).window[0])
        step = 120 * 1_000_000_000 // (len(table) // 6)
        times = [start + (row % (len(table) // 6)) * step for row in range(len(table))]
        return monotonous(table).set_column(
            table.schema.get_field_index("time"), "time", pa.array(times, pa.timestamp("ns", "UTC"))
        )

    view = alter(faulty, {"logs": still})
    ranking = RMLAD().localize(view, int(example.label(faulty).inject_start_ns) + 4_000_000_000)
    assert ranking.abstains
    assert ranking.confidence == 0
