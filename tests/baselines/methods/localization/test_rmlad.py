"""RMLAD: association of metrics with logs, and its answers on examples."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from faultset.baselines.methods.localization.rmlad import RMLAD, candidate_series, measure_association

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
