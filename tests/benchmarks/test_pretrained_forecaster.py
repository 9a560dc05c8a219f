"""Residuals of a small forecaster made here, and folders that hold none."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from faultset.core.errors import UsageError

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "external" / "pretrained_forecaster.py"
QUANTILES = [0.1, 0.5, 0.9]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pretrained_forecaster", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def write_model(folder: Path) -> Path:
    """Write a Chronos-Bolt with one layer and random weights."""
    pytest.importorskip("chronos", reason="needs pip install chronos-forecasting")
    from chronos.chronos_bolt import ChronosBoltModelForForecasting  # pyright: ignore[reportMissingImports]
    from transformers import T5Config  # pyright: ignore[reportMissingImports]

    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 2}
    config = T5Config(**sizes, vocab_size=2, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)
    config.chronos_config = {
        "context_length": 16,
        "prediction_length": 4,
        "input_patch_size": 4,
        "input_patch_stride": 4,
        "quantiles": QUANTILES,
        "use_reg_token": True,
    }
    config.chronos_pipeline_class = "ChronosBoltPipeline"
    config.architectures = ["ChronosBoltModelForForecasting"]
    ChronosBoltModelForForecasting(config).save_pretrained(folder)
    return folder


def test_residuals_are_distances_from_the_medians_of_the_loaded_model(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = write_model(tmp_path / "tiny")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    rng = np.random.default_rng(0)
    healthy, faulty = rng.normal(size=(60, 2)), rng.normal(size=(60, 2))
    faulty[40] += 50.0
    detector = script.ChronosResidual(weights=str(weights))
    detector.model_ = detector._learn([healthy])
    scores = detector._scores(faulty)
    pipeline = script.load_pipeline(str(weights))
    expected = [script.forecast_next(pipeline, faulty[40 - script.CONTEXT : 40, [role]].T)[0] for role in range(2)]

    assert len(scores) == 60 - script.CONTEXT
    jump = 40 - script.CONTEXT
    assert scores[jump] > 5 * scores[:jump].max()
    assert scores[jump] == pytest.approx(np.linalg.norm((faulty[40] - expected) / detector.model_), rel=1e-4)


def test_a_folder_without_a_model_or_outside_the_environment_is_refused(script: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"must hold a model with a config\.json"):
        script.load_pipeline(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="must be inside"):
        script.load_pipeline(str(tmp_path))
