"""Log anomaly scores learn from healthy lines only."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.baselines.logs.scores import (
    LogLines,
    NextTemplate,
    binned_share,
    combined_score,
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
