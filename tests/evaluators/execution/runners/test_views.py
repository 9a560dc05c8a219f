"""What methods share of an episode: worked out once, counted, and forgotten when there is too much."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from faultset.evaluators.execution.runners.cache import Memo
from faultset.evaluators.execution.runners.views import SharedView

START = pd.Timestamp("2026-01-01", tz="UTC")


@dataclass(frozen=True)
class Columns:
    """Two columns, as methods make them of a table."""

    times: np.ndarray
    values: np.ndarray


def columns() -> Columns:
    return Columns(np.zeros(1000), np.ones(1000))


def test_what_is_worked_out_of_an_episode_is_worked_out_once_and_forgotten_with_the_memo(example_dataset: Path) -> None:
    memo, calls = Memo(), []
    first, second = map(str, sorted((Path(example_dataset) / "episodes").iterdir())[:2])
    for path in (first, first, second):
        SharedView(path, memo, sli=False).once("calls", lambda: calls.append(1))
    assert len(calls) == 2
    SharedView(first, Memo(), sli=False).once("calls", lambda: calls.append(1))
    assert len(calls) == 3


def test_columns_that_are_kept_count_with_their_size_and_the_oldest_go_first() -> None:
    memo, made = Memo(40_000), []

    def make(key: str) -> Columns:
        made.append(key)
        return columns()

    for key in ("a", "b", "c", "a"):
        memo.once(key, partial(make, key))
    assert memo.used_bytes == 32_000
    assert made == ["a", "b", "c", "a"]
    memo.once("c", columns)
    assert memo.used_bytes == 32_000


def test_frames_count_with_the_size_that_pandas_gives_them_and_objects_with_more() -> None:
    frame = pd.DataFrame({"number": np.arange(500.0), "few": pd.Categorical(["a", "b"] * 250), "when": START})
    memo = Memo()
    memo.once("frame", lambda: frame)
    assert memo.used_bytes == frame.memory_usage(index=True).sum()
    words = pd.DataFrame({"word": pd.Series(["a"] * 500, dtype=object)})
    memo.once("words", lambda: words)
    assert memo.used_bytes > frame.memory_usage().sum() + words.memory_usage(index=True).sum()
