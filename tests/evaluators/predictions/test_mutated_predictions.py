"""Random changes of prediction files: they are scored, or one sentence says what is wrong."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from faultset.core.errors import FaultsetError
from faultset.datasets.testing.mutations import mutated, mutation_seeds
from faultset.evaluators.predictions.files import check_predictions, read_prediction_file

SECOND = 1_000_000_000
START = 1_760_000_000 * SECOND
FRAMES = {
    "scores": pd.DataFrame(
        {"episode": "e1", "time": [START + i * SECOND for i in range(50, 60)], "score": 0.5, "threshold": 0.7}
    ),
    "alarms": pd.DataFrame({"episode": ["e1", "h1"], "alarm": pd.array([START + SECOND, None], "Int64")}),
    "rankings": pd.DataFrame({"episode": "e1", "service": ["a", "b"], "score": [1.0, 2.0], "protocol": "detected"}),
    "diagnoses": pd.DataFrame({"episode": ["e1"], "level": ["Network"], "type": ["loss"]}),
}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("name", FRAMES)
def test_a_changed_file_is_read_or_refused(name: str, suffix: str, make: Any, tmp_path: Path) -> None:
    file = tmp_path / f"mine.{suffix}"
    write = FRAMES[name].to_csv if suffix == "csv" else FRAMES[name].to_parquet
    write(file, index=False)
    whole = file.read_bytes()
    truths = {"e1": make.truth(), "h1": make.healthy()}
    refused = 0
    for seed in mutation_seeds():
        file.write_bytes(mutated(whole, random.Random(f"{name}/{seed}")))
        said = ""
        try:
            check_predictions(read_prediction_file(file), truths, "shop version 1.0.0")
        except FaultsetError as error:
            refused += 1
            said = str(error)
        except Exception as error:
            raise AssertionError(f"seed {seed} ends in {type(error).__name__}: {error}") from error
        assert said.isprintable(), f"seed {seed}: {said!r}"
    assert refused
