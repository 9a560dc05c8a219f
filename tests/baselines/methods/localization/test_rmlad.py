"""RMLAD's parts against values computed by hand, and its abstention."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from faultset.baselines.features.service_latency import correlations
from faultset.baselines.logs.drain import WILDCARD, Drain, split_variables
from faultset.baselines.logs.scores import LogLines, score_logs
from faultset.baselines.logs.sequences import NextTemplate, binned_share, combined_score, parameter_anomalies
from faultset.baselines.methods.localization.multimodal.rmlad import RMLAD, association, candidate_series
from faultset.baselines.stats.mutual_information import binned_information, knn_information

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
    found = combined_score(SHARE, np.array([0, 0, 0, 1, 1, 0.0]))
    assert found == pytest.approx([0, 0, 1 / 6, 1, 1, 1 / 6])


def test_a_longer_memory_falls_back_to_a_shorter_one() -> None:
    model = NextTemplate(order=3, top=1, halve=False).fit([0, 1, 2, 0, 1, 2, 0, 1, 2])
    assert model.misses([9, 0, 1], after=(0, 1, 2)).tolist() == [True, True, False]


def test_at_most_half_of_the_templates_count_as_expected() -> None:
    model = NextTemplate(order=1, top=9).fit([0, 1, 0, 1, 0, 2, 0, 3])
    assert model.misses([1, 0, 2, 0, 3], after=(0,)).tolist() == [False, False, False, False, True]


def test_binned_information_of_the_worked_example() -> None:
    series = np.array([(1, 1, 1, 5, 5, 1), (1, 1, 5, 5, 5, 1), (1, 2, 1, 2, 1, 2), (9,) * 6], dtype=float)
    assert binned_information(series, SHARE) == pytest.approx([0.636514, 0.318257, 0, 0], abs=1e-6)


def test_correlation_of_the_worked_example_orders_alike() -> None:
    series = np.array([(1, 1, 1, 5, 5, 1), (1, 1, 5, 5, 5, 1), (1, 2, 1, 2, 1, 2), (9,) * 6], dtype=float)
    flags = np.array([0, 0, 0, 1, 1, 0], dtype=float)
    assert np.abs(correlations(series.T, SHARE)) == pytest.approx([0.9449, 0.8018, 0, 0], abs=1e-4)
    assert binned_information(series, flags) == pytest.approx(binned_information(series, SHARE))


EIGHT = np.array([0, 0, 0, 0, 1, 1, 1, 1], dtype=float)
EIGHT_SERIES = np.array(
    [(1, 1, 1, 1, 5, 5, 5, 5), (1, 1, 1, 5, 5, 5, 5, 5), (0, 0, 0, 0, 0, 0, 0, 7), (1, 2) * 4], dtype=float
)


def test_binned_information_of_eight_bins() -> None:
    assert binned_information(EIGHT_SERIES, EIGHT) == pytest.approx([0.6931, 0.3804, 0.0956, 0], abs=1e-4)


def test_association_orders_eight_bins_like_the_exact_values() -> None:
    rng = np.random.default_rng(0)
    found = association(EIGHT_SERIES.T, EIGHT, replicates=20, noise=0.1, neighbours=3, rng=rng)
    assert (np.diff(found) < 0).all()


def test_association_finds_a_series_that_lags() -> None:
    rng = np.random.default_rng(1)
    target = rng.normal(size=40)
    late = np.roll(target, 2)[:, None]
    apart, together = (
        association(late, target, replicates=5, noise=0.1, neighbours=3, rng=rng, lag=lag)[0] for lag in (0, 2)
    )
    assert together > apart + 0.5


@pytest.mark.parametrize("neighbours", [2, 3, 5])
def test_batched_information_equals_scikit_learn(neighbours: int) -> None:
    from sklearn.feature_selection import mutual_info_regression

    rng = np.random.default_rng(2)
    target = rng.normal(size=40)
    series = np.outer(np.linspace(0, 2, 25), target) + rng.normal(size=(25, 40))
    expected = mutual_info_regression(series.T, target, n_neighbors=neighbours, random_state=0)
    assert knn_information(series, target, neighbours=neighbours) == pytest.approx(expected, abs=1e-6)
    repeated = np.tile(target, (25, 1))
    assert knn_information(series, repeated, neighbours=neighbours) == pytest.approx(expected, abs=1e-6)


def test_information_needs_more_samples_than_neighbours() -> None:
    assert knn_information(np.ones((2, 3)), np.ones(3), neighbours=3).tolist() == [0, 0]


def test_candidates_are_those_that_moved_unless_they_are_few() -> None:
    z = np.zeros((10, 8))
    z[3, :5] = 4.0
    z[:, 6] = np.linspace(0, 1, 10)
    assert candidate_series(z).tolist() == [True] * 5 + [False] * 3
    assert candidate_series(z[:, 4:]).tolist() == [True, False, True, False]


def test_variables_are_taken_out_of_messages() -> None:
    masked, numbers = split_variables("TRC GET /cart/7f3a9c21 from 10.0.0.4:8083 took 12.5ms, status 200, v1.2.3")
    assert masked == f"TRC GET /cart/{WILDCARD} from {WILDCARD} took {WILDCARD}ms, status {WILDCARD}, v1.2.3"
    assert numbers == [12.5, 200.0]


def test_words_that_merely_hold_digits_stay() -> None:
    assert split_variables("s3 http2 facade deadbeef") == ("s3 http2 facade deadbeef", [])


def test_template_id_is_stable_while_its_words_become_wildcards() -> None:
    drain = Drain()
    first = drain.add("user alice logged in")
    assert drain.add("user bob logged in") == first
    assert drain.templates[first].text == f"user {WILDCARD} logged in"
    assert drain.add("user alice logged in") == first
    assert drain.templates[first].count == 3


def test_messages_of_other_length_or_first_word_have_their_own_template() -> None:
    drain = Drain()
    ids, _ = drain.add_all(["job started now", "job started", "worker started now", "job ended today", ""])
    assert ids == [0, 1, 2, 3, 4]


def test_full_nodes_share_one_branch() -> None:
    drain = Drain(max_children=2)
    ids, _ = drain.add_all([f"{word} is the first of many words" for word in ("a", "b", "c", "d")])
    assert ids == [0, 1, 2, 2]


def test_odd_parameters_are_told_by_template() -> None:
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
        found = score_logs(lines, healthy_end_ns=120, start_ns=60, step_ns=30, bins=4)
        assert found.system[:2].tolist() == [0, 0]
        # However often the new line comes, it stays unexpected.
        assert found.system[2] == pytest.approx(late[:30].count("boom boom boom") / 30, abs=0.05)
        assert found.unexpected_lines[0][:2] == ("geo", "boom boom boom")


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
        # Equal pauses, so that time tells nothing either.
        start = int(example.view(faulty).view[0])
        step = 120 * 1_000_000_000 // (len(table) // 6)
        times = [start + (row % (len(table) // 6)) * step for row in range(len(table))]
        return monotonous(table).set_column(
            table.schema.get_field_index("time"), "time", pa.array(times, pa.timestamp("ns", "UTC"))
        )

    view = alter(faulty, {"logs": still})
    ranking = RMLAD().localize(view, int(example.label(faulty).inject_start_ns) + 4_000_000_000)
    assert ranking.abstains
    assert ranking.confidence == 0
