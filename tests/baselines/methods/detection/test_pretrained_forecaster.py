"""Residuals of a small Chronos model with random weights, and folders without a model."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from faultset.baselines.methods.detection.pretrained_forecaster import (
    CONTEXT,
    PretrainedForecastResidual,
    forecast_next,
    load_model,
)
from faultset.core.errors import UsageError, is_installed
from faultset.evaluators.execution.plan import choose_baselines

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
