"""Lines that are unexpected by sequence models."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.baselines.features.log_lines import TemplateLines
from faultset.baselines.methods.detection.deeplog import (
    HISTORY,
    NextTemplateNetwork,
    find_unexpected_lines,
    mean_cross_entropy,
)
from faultset.baselines.methods.localization.rmlad import NextTemplate
from faultset.baselines.networks import dense_parameters, lstm_parameters, train
from faultset.core.errors import is_installed


@pytest.mark.parametrize("order", [1, 2, 3])
def test_unexpected_lines_are_those_of_the_sequence_model(order: int) -> None:
    rng = np.random.default_rng(order)
    templates = rng.integers(0, 6, 400)
    groups = rng.integers(0, 3, 400)
    healthy = np.arange(400) < 250
    result = find_unexpected_lines(templates, groups, healthy, order=order, top=2, leave_out=False)
    for group in range(3):
        rows = np.flatnonzero(groups == group)
        model = NextTemplate(order=order, top=2).fit(templates[rows[healthy[rows]]].tolist())
        np.testing.assert_array_equal(result[rows], model.misses(templates[rows].tolist(), after=()))


def test_the_vector_of_the_reference_gives_the_known_misses() -> None:
    letters = "ABCABCABDABC" + "ABCABCABDXXCXAXABC"
    templates = np.array(["ABCDX".index(letter) for letter in letters])
    healthy = np.arange(len(letters)) < 12
    groups = np.zeros(len(letters), dtype=np.int64)
    missed = find_unexpected_lines(templates, groups, healthy, order=1, top=1, leave_out=False)[12:]
    assert missed.reshape(6, 3).mean(axis=1) == pytest.approx([0, 0, 1 / 3, 1, 1, 1 / 3])


def test_a_healthy_line_does_not_vouch_for_itself() -> None:
    templates = np.array([0, 1, 0, 1, 0, 1, 0, 2, 0, 1])
    groups, healthy = np.zeros(10, dtype=np.int64), np.ones(10, dtype=bool)
    held_out = find_unexpected_lines(templates, groups, healthy, order=1)
    remaining = find_unexpected_lines(templates, groups, healthy, order=1, leave_out=False)
    assert held_out[7]
    assert not held_out[9]
    assert remaining.sum() <= held_out.sum()


def test_no_lines_are_no_trouble() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    assert len(find_unexpected_lines(nothing, nothing, nothing.astype(bool))) == 0


def lines(templates: list[int], services: list[int]) -> TemplateLines:
    return TemplateLines(
        times_ns=np.arange(len(templates)),
        services=np.array(services),
        templates=np.array(templates),
        texts=("a", "b", "new"),
    )


def network(hidden: int = 8) -> NextTemplateNetwork:
    rng = np.random.default_rng(0)
    parameters = {
        "vectors": rng.normal(size=(4, 4)),
        "cell": lstm_parameters(rng, 4, hidden),
        "output": dense_parameters(rng, hidden, 4),
    }
    return NextTemplateNetwork(codes={"a": 2, "b": 3}, parameters=parameters)


def test_what_comes_before_a_line_is_of_its_own_service():
    result = network().windows(lines([0, 1, 1, 0, 2], [0, 5, 0, 5, 0]))
    assert result.shape == (5, HISTORY + 1)
    assert result[:, -1].tolist() == [2, 3, 3, 2, 0]
    assert result[:, -2].tolist() == [1, 1, 2, 3, 3]


@pytest.mark.skipif(not is_installed("neural"), reason="the extra neural is not installed")
def test_a_line_out_of_order_is_unexpected_after_training():
    start = network()
    healthy = start.windows(lines([0, 1] * 100, [0] * 200))
    losses = [(mean_cross_entropy, tuple(start.parameters))]
    parameters = train(start.parameters, losses, [healthy], updates=150, batch=32, seed=0, rate=2e-2)
    taught = NextTemplateNetwork(codes=start.codes, parameters=parameters)
    odd = lines([0, 1] * 10 + [1, 2], [0] * 22)
    assert np.flatnonzero(taught.misses(taught.windows(odd), top=1)).tolist() == [20, 21]
