"""Detectors across episodes learn from training episodes only, and transfer to other services."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from faultset.baselines.features.role_streams import healthy_sequences, read_role_vectors
from faultset.baselines.methods.detection.pooled_detectors import (
    CONTEXT,
    Autoencoder,
    ForecastResidual,
    NearestWindow,
    PooledIsolationForest,
    PooledPCA,
    PretrainedForecastResidual,
    UntrainedAutoencoder,
    forecast_next,
    load_model,
    thin,
)
from faultset.baselines.registry import get_baseline
from faultset.baselines.testing.episodes import (
    ExampleEpisodes,
    build_context_renaming,
    build_renaming,
    example_episodes,
)
from faultset.core.errors import UsageError, is_installed
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.metrics.roles import ROLES
from faultset.evaluators.execution.plan import choose_baselines

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


NAME = "pretrained-forecast-residual"


def write_model(folder: Path) -> Path:
    """Write a Chronos-Bolt with one layer and random weights."""
    import torch  # pyright: ignore[reportMissingImports]
    from chronos.chronos_bolt import ChronosBoltModelForForecasting  # pyright: ignore[reportMissingImports]
    from transformers import T5Config  # pyright: ignore[reportMissingImports]

    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 2}
    config = T5Config(**sizes, vocab_size=2, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)
    config.chronos_config = {
        "context_length": 16,
        "prediction_length": 4,
        "input_patch_size": 4,
        "input_patch_stride": 4,
        "quantiles": [0.1, 0.5, 0.9],
        "use_reg_token": True,
    }
    config.chronos_pipeline_class = "ChronosBoltPipeline"
    torch.manual_seed(0)
    config.architectures = ["ChronosBoltModelForForecasting"]
    ChronosBoltModelForForecasting(config).save_pretrained(folder)
    return folder


@pytest.mark.skipif(not is_installed("forecasters"), reason="the extra forecasters is not installed")
def test_scores_are_scaled_distances_from_the_median_forecasts(tmp_path: Path) -> None:
    weights = str(write_model(tmp_path / "tiny"))
    rng = np.random.default_rng(0)
    healthy, faulty = rng.normal(size=(60, 2)), rng.normal(size=(60, 2))
    faulty[40] += 50.0
    detector = PretrainedForecastResidual(weights=weights)
    detector.model_ = detector._learn([healthy])
    scores = detector._scores(faulty)
    jump = 40 - CONTEXT
    expected = forecast_next(load_model(weights), faulty[jump:40].T)

    assert len(scores) == 60 - CONTEXT
    assert scores[jump] > 2 * scores[:jump].max()
    assert scores[jump] == pytest.approx(np.linalg.norm((faulty[40] - expected) / detector.model_), rel=1e-4)


class Pipeline:
    """Forecasts the last value, with the input check and the result of Chronos-Bolt or Chronos-2."""

    def __init__(self, *, returns_list: bool) -> None:
        self.returns_list = returns_list

    def predict_quantiles(self, inputs: Any, *, prediction_length: int, quantile_levels: list[float]) -> Any:
        if isinstance(inputs, np.ndarray) and self.returns_list and inputs.ndim != 3:
            raise ValueError("When the input is a tensor, it must be 3-dimensional")
        forecasts = [np.full((1, prediction_length, len(quantile_levels)), window[-1]) for window in inputs]
        return (forecasts if self.returns_list else np.concatenate(forecasts)), None


@pytest.mark.parametrize("returns_list", [False, True], ids=["Chronos-Bolt", "Chronos-2"])
def test_both_families_forecast_each_window(returns_list: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(tensor=np.array, float32=np.float32))
    windows = np.arange(6.0).reshape(3, 2)
    assert forecast_next(Pipeline(returns_list=returns_list), windows).tolist() == [1.0, 3.0, 5.0]


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"must hold a model of the Chronos family, but has no config\.json"):
        load_model(str(tmp_path))


def test_it_runs_only_if_named() -> None:
    assert NAME not in {spec.name for group in ("all", "methods") for spec in choose_baselines([group])}


@pytest.mark.skipif(is_installed("forecasters"), reason="the extra forecasters is installed")
def test_the_extra_is_named() -> None:
    with pytest.raises(UsageError, match=r'needs the extra "forecasters"'):
        choose_baselines([NAME])
