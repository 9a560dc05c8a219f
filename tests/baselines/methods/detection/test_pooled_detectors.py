"""Detectors across episodes learn from training episodes only, and transfer to other services."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.baselines.api.registry import get_baseline
from faultset.baselines.features.role_streams import healthy_sequences, read_role_vectors
from faultset.baselines.methods.detection.pooled_detectors import (
    Autoencoder,
    ForecastResidual,
    NearestWindow,
    PooledIsolationForest,
    PooledPCA,
    UntrainedAutoencoder,
    thin,
)
from faultset.baselines.testing.episodes import (
    ExampleEpisodes,
    build_context_renaming,
    build_renaming,
    example_episodes,
)
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.metrics.roles import ROLES

POOLED = (PooledPCA, Autoencoder, UntrainedAutoencoder, PooledIsolationForest, NearestWindow, ForecastResidual)


@pytest.fixture(scope="module")
def examples() -> ExampleEpisodes:
    return example_episodes()


@pytest.fixture(scope="module")
def healthy(examples: ExampleEpisodes) -> list:
    return [item.view for item in examples.training if item.fault_type is None]


def correlated(steps: int, rng: np.random.Generator, *, broken: bool = False) -> np.ndarray:
    """Return vectors whose second component is twice the first in healthy steps."""
    rows = np.zeros((steps, len(ROLES)))
    rows[:, 0] = rng.uniform(0, 2, steps)
    rows[:, 1] = 2 * rows[:, 0] + rng.normal(0, 0.02, steps)
    if broken:
        rows[:, 1] = 4 - rows[:, 1]
    return rows


@pytest.mark.parametrize("made", POOLED)
def test_without_training_episodes_a_learner_is_silent(made, examples: ExampleEpisodes):
    detection = made().fit([]).detect(examples.faulty.view)
    assert len(detection.times_ns) == 0
    assert detection.alarm_ns is None


@pytest.mark.parametrize("made", POOLED)
def test_services_of_other_names_are_scored_the_same(made, examples: ExampleEpisodes, healthy: list):
    names = {name: f"x-{name}" for name in examples.faulty.view.services}
    edits = dict.fromkeys(TABLES, build_renaming(names))
    view = examples.alter("services renamed", edits, context=build_context_renaming(names))
    model = made().fit(healthy)
    own, other = model.detect(examples.faulty.view), model.detect(view)
    np.testing.assert_allclose(own.scores, other.scores, rtol=1e-9)
    assert own.threshold == pytest.approx(other.threshold)


@pytest.mark.parametrize("made", [PooledPCA, Autoencoder, NearestWindow])
def test_a_broken_relation_is_seen_though_each_value_is_usual(made):
    rng = np.random.default_rng(0)
    model = made()
    model.model_ = model._learn([correlated(400, rng) for _ in range(3)])
    usual, broken = (model._scores(correlated(100, rng, broken=flag)) for flag in (False, True))
    assert np.median(broken) > 2 * np.median(usual)


def test_training_lowers_the_error_of_the_autoencoder():
    rng = np.random.default_rng(0)
    sequences = [correlated(400, rng) for _ in range(3)]
    trained, untrained = Autoencoder(), UntrainedAutoencoder()
    for model in (trained, untrained):
        model.model_ = model._learn(sequences)
    rows = correlated(100, rng)
    assert trained._scores(rows).mean() < 0.5 * untrained._scores(rows).mean()


def test_a_forecast_foresees_what_repeats_and_not_what_jumps():
    wave = np.zeros((300, len(ROLES)))
    wave[:, 3] = 1 + np.sin(np.arange(300) / 4)
    model = ForecastResidual()
    model.model_ = model._learn([wave])
    jumped = wave.copy()
    jumped[150:, 3] += 2
    scores = model._scores(jumped)
    assert len(scores) == len(wave) - model.lags
    assert scores.argmax() == 150 - model.lags
    assert scores[:140].max() < 0.2 * scores.max()


def test_a_view_that_ends_with_its_reference_can_be_learned_from(examples: ExampleEpisodes):
    view = examples.faulty.view
    end_ns = view.reference[1]
    short = examples.alter(
        "ends with its reference",
        {"metrics": lambda rows: rows.filter(np.asarray(rows["time"].cast("int64")) < end_ns)},
        context=lambda known: known | {"view_end_ns": end_ns},
    )
    assert len(healthy_sequences([short])) == len(view.services)
    whole, cut = read_role_vectors(view), read_role_vectors(short)
    assert whole is not None
    assert cut is not None
    np.testing.assert_allclose(cut.vectors[: cut.healthy], whole.vectors[: whole.healthy])
    assert PooledPCA().fit([short]).detect(view).alarm_ns is not None


def test_rows_beyond_the_most_are_thinned_out_evenly():
    one, other = np.arange(10.0), np.arange(10.0, 16.0)
    assert thin([one, other], 8).tolist() == [0, 2, 4, 6, 8, 10, 12, 14]
    assert sorted(thin([other, one], 8)) == sorted(thin([one, other], 8))
    assert thin([one, other], 20).tolist() == list(range(16))


@pytest.mark.parametrize("made", POOLED)
def test_what_it_learned_from_is_declared(made):
    spec = get_baseline(made.name)
    assert spec.learns_from_references
    assert (spec.kind == "control") == (made is UntrainedAutoencoder)
