"""What methods share of an episode: worked out once, counted, and forgotten when there is too much."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from faultset.datasets.views import EpisodeView
from faultset.evaluators.execution.runners.views import Cache, SharedView

START = pd.Timestamp("2026-01-01", tz="UTC")


@dataclass(frozen=True)
class Columns:
    """Two columns, as methods make them of a table."""

    times: np.ndarray
    values: np.ndarray


def columns() -> Columns:
    return Columns(np.zeros(1000), np.ones(1000))


def test_what_is_worked_out_of_an_episode_is_worked_out_once_and_forgotten_with_the_memo(example_dataset: Path) -> None:
    cache, calls = Cache(), []
    first, second = map(str, sorted((Path(example_dataset) / "episodes").iterdir())[:2])
    for path in (first, first, second):
        SharedView(path, cache, tables=frozenset()).once("calls", lambda: calls.append(1))
    assert len(calls) == 2
    SharedView(first, Cache(), tables=frozenset()).once("calls", lambda: calls.append(1))
    assert len(calls) == 3


def test_series_left_out_of_a_shared_value_are_noted_for_every_method_that_uses_it(example_dataset: Path) -> None:
    cache, path = Cache(), str(next(iter((Path(example_dataset) / "episodes").iterdir())))
    noted = []
    for _ in range(2):
        view = SharedView(path, cache, tables=frozenset())
        view.once("outer", lambda view=view: view.once("inner", lambda: view.note_skipped_series([("geo", "limit")])))
        noted.append(view.left_out)
    assert noted == [{("geo", "limit")}] * 2


def test_columns_that_are_kept_count_with_their_size_and_the_oldest_go_first() -> None:
    cache, made = Cache(40_000), []

    def make(key: str) -> Columns:
        made.append(key)
        return columns()

    for key in ("a", "b", "c", "a"):
        cache.get_or_compute(key, partial(make, key))
    assert cache.used_bytes == 32_000
    assert made == ["a", "b", "c", "a"]
    cache.get_or_compute("c", columns)
    assert cache.used_bytes == 32_000


def test_frames_count_with_the_size_that_pandas_gives_them_and_objects_with_more() -> None:
    frame = pd.DataFrame({"number": np.arange(500.0), "few": pd.Categorical(["a", "b"] * 250), "when": START})
    cache = Cache()
    cache.get_or_compute("frame", lambda: frame)
    assert cache.used_bytes == frame.memory_usage(index=True).sum()
    words = pd.DataFrame({"word": pd.Series(["a"] * 500, dtype=object)})
    cache.get_or_compute("words", lambda: words)
    assert cache.used_bytes > frame.memory_usage().sum() + words.memory_usage(index=True).sum()


def test_a_column_is_read_once_whichever_others_methods_ask_for(
    example_dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = next(iter(sorted((Path(example_dataset) / "episodes").iterdir())))
    wanted = [["time", "message"], [], ["level", "message"], ["message", "time"], None]
    plain = [EpisodeView(folder).table("logs", columns) for columns in wanted]
    read: list[str] = []
    original = EpisodeView.table

    def noted(view: EpisodeView, name: str, columns: list[str], filters: object = None) -> object:
        read.extend(columns)
        return original(view, name, columns, filters)  # type: ignore[arg-type]

    monkeypatch.setattr(EpisodeView, "table", noted)
    cache = Cache()
    for columns, expected in zip(wanted, plain, strict=True):
        found = SharedView(str(folder), cache, tables=frozenset({"logs"})).table("logs", columns)
        assert found.schema == expected.schema
        assert found.equals(expected)
    assert sorted(read) == sorted(plain[-1].column_names)
