"""Prediction files are read with all their types checked, and damaged ones are refused in one sentence."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faultset.core.errors import DataError, FaultsetError, UsageError
from faultset.datasets.testing import mutate, mutation_seeds
from faultset.evaluators.predictions import files
from faultset.evaluators.predictions.files import (
    ALARMS,
    DIAGNOSES,
    RANKINGS,
    SCORES,
    check_names,
    check_predictions,
    read_prediction_file,
)

SECOND = 1_000_000_000
START = 1_760_000_000 * SECOND


def scores(**changes) -> pd.DataFrame:
    """Three samples of the episode e1."""
    values = {"episode": "e1", "time": [START + 50 * SECOND, START + 51 * SECOND, START + 52 * SECOND], "score": 0.5}
    return pd.DataFrame(values | changes)


def rankings(**changes) -> pd.DataFrame:
    return pd.DataFrame({"episode": "e1", "service": ["a", "b"], "score": [1.0, 2.0]} | changes)


def written(frame: pd.DataFrame, path: Path) -> Path:
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path, index=False)
    return path


@pytest.fixture
def checked(tmp_path: Path, make) -> Callable[..., files.PredictionFile]:
    """Write a frame, read it and check it against the episodes e1 (with a fault) and h1 (without)."""

    def check(frame: pd.DataFrame, name: str = "mine.parquet") -> files.PredictionFile:
        file = read_prediction_file(written(frame, tmp_path / name))
        check_predictions(file, {"e1": make.truth(), "h1": make.healthy()}, "shop version 1.0.0")
        return file

    return check


@pytest.mark.parametrize(
    ("frame", "layout"),
    [
        (scores(), SCORES),
        (scores(threshold=0.7), SCORES),
        (pd.DataFrame({"episode": ["e1", "h1"], "alarm": pd.array([START + SECOND, None], "Int64")}), ALARMS),
        (rankings(protocol="detected"), RANKINGS),
        (pd.DataFrame({"episode": ["e1"], "level": ["Network"], "type": [None]}), DIAGNOSES),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_both_formats_of_every_layout_say_the_same(checked, frame, layout, suffix: str):
    file = checked(frame, f"mine.{suffix}")
    assert file.layout is layout
    assert file.name == "mine"
    assert len(file.frame) == len(frame)
    for column in set(frame) & {"time", "score", "threshold"}:
        np.testing.assert_array_equal(file.frame[column], frame[column])
    if layout is ALARMS:
        assert file.frame["alarm"].tolist() == [START + SECOND, -1]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_times_with_a_zone_become_nanoseconds(checked, suffix: str):
    zoned = pd.to_datetime(scores()["time"], utc=True).dt.tz_convert("Asia/Tokyo")
    file = checked(scores(time=zoned), f"mine.{suffix}")
    np.testing.assert_array_equal(file.frame["time"], scores()["time"])


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (scores(episode="e9"), r'1 episode missing from shop version 1.0.0 \(first: "e9"\)'),
        (scores(episode=None), "3 rows without an episode"),
        (pd.concat([scores(), scores()]), "3 repeated rows"),
        (scores(score=[0.1, np.nan, 0.2]), "NaN or infinite|empty cells"),
        (scores(score=[0.1, np.inf, 0.2]), "1 of 3 values are NaN or infinite"),
        (scores(score=["a", "b", "c"]), "must be numbers"),
        (scores(time=[START - SECOND, START, START + SECOND]), "within the episode's view, but 1 of 3 times"),
        (scores(time=[1_760_000_050, 1_760_000_051, 1_760_000_052]), "3 of 3 times .* UTC nanoseconds"),
        (scores(time=[1.76e9, 1.77e9, 1.78e9]), "must be UTC nanoseconds as integers"),
        (scores(time=pd.to_datetime(scores()["time"])), "with a time zone"),
        (scores(time=pd.array([START, None, START + 1], "Int64")), "1 empty cells"),
        (scores(threshold=[1.0, 2.0, 1.0]), 'column threshold .* has 2 in "e1"'),
        (scores(threshold=pd.array([1.0, None, None])), "column threshold .* empty cells"),
        (scores(alarm=START), "expected one of: episode, time, score"),
        (scores(service="a"), "expected one of"),
        (scores().drop(columns="score"), "expected one of"),
        (scores().iloc[:0], "has no rows"),
        (rankings(service=["a", "who"]), 'ranks "who", which is not a candidate'),
        (rankings(service=["a", "a"]), "1 repeated rows"),
        (rankings(service=["a", None]), "a service but no score, or a score but no service"),
        (rankings(service=["a", None], score=[1.0, None]), "rows with and without a service"),
        (rankings(protocol="told"), 'column protocol of .* contains "told"'),
        (pd.DataFrame({"episode": ["e1"], "alarm": [START + 200 * SECOND]}), "1 of 1 times are not"),
        (pd.DataFrame({"episode": ["e1", "e1"], "level": "Network", "type": "Delay"}), "1 repeated rows"),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_what_is_wrong_is_said_in_one_sentence(checked, frame, said: str, suffix: str):
    with pytest.raises(DataError, match=said) as caught:
        checked(frame, f"mine.{suffix}")
    assert "\n" not in str(caught.value)


def test_numbers_are_no_names(checked):
    with pytest.raises(DataError, match=r"column level of .* must be text, got int64"):
        checked(pd.DataFrame({"episode": ["e1"], "level": [3], "type": ["Delay"]}))


def test_files_that_are_none_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(DataError, match="is missing"):
        read_prediction_file(tmp_path / "nothing.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="is a folder"):
        read_prediction_file(tmp_path / "folder.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(DataError, match="is a named pipe"):
        read_prediction_file(tmp_path / "pipe.csv")
    (tmp_path / "empty.csv").write_bytes(b"")
    with pytest.raises(DataError, match="is empty"):
        read_prediction_file(tmp_path / "empty.csv")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read_prediction_file(tmp_path / "torn.parquet")
    (tmp_path / "ragged.csv").write_text("episode,alarm\ne1,1,2\n")
    with pytest.raises(DataError, match="cannot be read as CSV"):
        read_prediction_file(tmp_path / "ragged.csv")
    (tmp_path / "coded.csv").write_bytes(b"episode,service,score\n\xff\xfe,a,1\n")
    with pytest.raises(DataError, match="cannot be read as CSV"):
        read_prediction_file(tmp_path / "coded.csv")
    (tmp_path / "twice.csv").write_text("episode,alarm,alarm\ne1,1,2\n")
    with pytest.raises(DataError, match='the column "alarm" more than once'):
        read_prediction_file(tmp_path / "twice.csv")
    monkeypatch.setattr(files, "MAX_BYTES", 10)
    with pytest.raises(DataError, match="at most 10"):
        read_prediction_file(written(scores(), tmp_path / "large.csv"))


def test_a_small_file_of_too_many_rows_is_refused_before_they_are_unpacked(tmp_path: Path):
    many = pa.table({"episode": pa.repeat("e1", 30_000_000).dictionary_encode(), "alarm": pa.nulls(30_000_000)})
    pq.write_table(many, tmp_path / "many.parquet", compression="zstd")
    assert (tmp_path / "many.parquet").stat().st_size < 1_000_000
    with pytest.raises(DataError, match=r"has 30,000,000 rows"):
        read_prediction_file(tmp_path / "many.parquet")


def test_a_method_is_called_what_its_file_or_its_user_says(tmp_path: Path):
    path = written(scores(), tmp_path / "run=1.csv")
    assert read_prediction_file(f"usad={path}").name == "usad"
    with pytest.raises(UsageError, match="NAME=FILE"):
        read_prediction_file(path)
    with pytest.raises(UsageError, match="has no file after the name"):
        read_prediction_file("usad=")
    twice = [read_prediction_file(f"usad={path}")] * 2
    with pytest.raises(UsageError, match=r'the name "usad" .* belongs to another method'):
        check_names(twice, [])
    with pytest.raises(UsageError, match=r'the name "usad" .* belongs to another method'):
        check_names(twice[:1], ["usad"])


def test_the_identity_of_a_file_is_its_content(tmp_path: Path):
    first, same, other = (
        read_prediction_file(written(frame, tmp_path / f"{name}.csv"))
        for name, frame in (("a", scores()), ("b", scores()), ("c", scores(score=0.6)))
    )
    assert first.code == same.code != other.code
    assert first.record["sha256"] == same.record["sha256"]


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
        file.write_bytes(mutate(whole, random.Random(f"{name}/{seed}")))
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
