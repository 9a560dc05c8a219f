"""Reference and test windows, gaps and series that stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faultset.baselines.features.windows import (
    Windows,
    cut_windows,
    detection_windows,
    list_step_ends,
    localization_windows,
)
from faultset.baselines.stats.scaling import (
    ABSENT_Z,
    deviations,
    mean_and_sd,
    median_and_iqr,
    median_and_mad,
    with_floor,
    with_metric_floor,
)
from faultset.core.times import SECOND_NS
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.format.context import resolution_s
from faultset.datasets.views import EpisodeView

SECOND = 1_000_000_000


def wide(columns: dict[tuple[str, str], list[float]]) -> pd.DataFrame:
    length = len(next(iter(columns.values())))
    index = pd.DatetimeIndex(SECOND * np.arange(length), tz="UTC").as_unit("ns")
    return pd.DataFrame(
        np.array(list(columns.values()), dtype=float).T, index=index, columns=pd.MultiIndex.from_tuples(columns)
    )


def split(columns: dict[tuple[str, str], list[float]], at: int) -> Windows:
    return cut_windows(wide(columns), step_ns=SECOND, reference_end_ns=at * SECOND, values_start_ns=at * SECOND)


@pytest.mark.parametrize(
    ("step", "reference", "expected"),
    [(1, 36, 1), (1, 60, 1), (1, 61, 2), (1, 144, 3), (5, 240, 5), (15, 600, 15), (15, 3600, 60), (0.5, 60, 1)],
)
def test_resolution_is_a_sixtieth_of_the_reference_in_whole_steps(step, reference, expected) -> None:
    assert resolution_s(step, reference) == expected


def test_series_that_never_move_are_left_out_by_name_unless_they_stop() -> None:
    nan = np.nan
    series = {
        ("a", "limit"): [4.0] * 10,
        ("a", "limit with a hole"): [4.0] * 6 + [nan] + [4.0] * 3,
        ("a", "rss"): [1.0, 2.0] * 5,
        ("a", "up"): [1.0] * 5 + [nan] * 5,
    }
    border: Any = {"step_ns": SECOND, "reference_end_ns": 5 * SECOND, "values_start_ns": 5 * SECOND}
    windows = cut_windows(wide(series), **border, keep_constant=False)
    assert windows.series == (("a", "rss"), ("a", "up"))
    assert windows.left_out == (("a", "limit"), ("a", "limit with a hole"))
    assert cut_windows(wide(series), **border).left_out == ()


def test_rows_across_the_border_are_not_healthy() -> None:
    windows = cut_windows(
        wide({("a", "x"): list(range(10))}),
        step_ns=SECOND,
        reference_end_ns=5 * SECOND + 1,
        values_start_ns=5 * SECOND + 1,
    )
    assert windows.reference[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert windows.values[:, 0].tolist() == [5, 6, 7, 8, 9]
    assert windows.times_ns.tolist() == [second * SECOND for second in range(6, 11)]


def test_columns_are_sorted_and_sparse_ones_dropped() -> None:
    nan = np.nan
    windows = split(
        {
            ("b", "x"): [1.0] * 10,
            ("a", "y"): [nan, nan, 1, 1, 1, 1, 1, 1, 1, 1],
            ("a", "x"): [nan, 1, 1, 1, 1, 1, 1, 1, 1, 1],
        },
        5,
    )
    assert windows.series == (("a", "x"), ("b", "x"))


def test_a_short_reference_tolerates_one_late_sample_if_two_are_left() -> None:
    nan = np.nan
    late = {("late", "x"): [1.0, nan, 2.0, 5.0, 5.0], ("regular", "x"): [1.0, 1.0, 1.0, 1.0, 1.0]}
    assert split(late, 3).series == (("late", "x"), ("regular", "x"))
    assert split({**late, ("late", "x"): [1.0, nan, nan, 5.0, 5.0]}, 3).left_out == (("late", "x"),)
    assert split({**late, ("late", "x"): [1.0, nan, 5.0, 5.0, 5.0]}, 2).left_out == (("late", "x"),)


def test_short_gaps_are_filled_and_long_ones_are_absence() -> None:
    nan = np.nan
    windows = split({("a", "x"): [1, 2, 3, 4, 5, 6, nan, nan, nan, nan, 7, nan]}, 5)
    np.testing.assert_array_equal(windows.values[:, 0], [6, 6, 6, nan, nan, 7, 7])
    assert windows.absent[:, 0].tolist() == [False, False, False, True, True, False, False]
    z = deviations(windows.values, *mean_and_sd(windows.reference), windows.absent)
    assert z[3:5, 0].tolist() == [ABSENT_Z, ABSENT_Z]


def test_a_series_with_usual_gaps_is_absent_only_after_longer_ones() -> None:
    nan = np.nan
    series = [1, nan, nan, nan, nan, *[1.0] * 20, *[nan] * 6]
    windows = split({("a", "x"): series}, 25)
    assert windows.absent[:, 0].tolist() == [False] * 4 + [True] * 2


def test_gaps_that_lost_samples_explain_are_no_absence_and_longer_ones_are() -> None:
    rng = np.random.default_rng(0)
    series = np.where(rng.random((120, 300)) < 0.15, np.nan, 1.0)
    series[90:, 0] = np.nan
    series[0] = 1.0
    windows = split({("a", f"m{column:03}"): list(series[:, column]) for column in range(300)}, 60)
    assert windows.series[0] == ("a", "m000")
    assert windows.absent[37:, 0].all()
    assert not windows.absent[:, 1:].any()


def test_filling_does_not_look_ahead() -> None:
    series = [1.0, 2, 3, 4, np.nan, 6, 7]
    early = split({("a", "x"): series[:5]}, 3)
    late = split({("a", "x"): series}, 3)
    np.testing.assert_array_equal(early.values, late.values[:2])


def test_floor_is_a_percent_of_the_level() -> None:
    result = with_floor(np.array([0.0, 5.0, 0.0]), np.array([200.0, 200.0, 0.0]))
    assert result.tolist() == [2.0, 5.0, 0.0]


def test_an_idle_service_is_measured_by_what_its_metric_does_elsewhere() -> None:
    series = [("a", "cpu"), ("b", "cpu"), ("a", "errors"), ("b", "errors")]
    result = with_metric_floor(np.array([0.0, 0.08, 1e-9, 1e-9]), series)
    assert result == pytest.approx([0.25 * 0.08 / 2**0.5, 0.08, 1e-9, 1e-9])


def test_spreads_leave_gaps_out() -> None:
    data = np.array([[1.0], [3.0], [np.nan], [5.0]])
    assert mean_and_sd(data)[0] == pytest.approx([3.0])
    assert mean_and_sd(data)[1] == pytest.approx([np.std([1, 3, 5])])
    assert median_and_mad(data)[1] == pytest.approx([1.4826 * 2])
    assert median_and_iqr(data)[1] == pytest.approx([2.0])


def test_localizers_get_the_two_samples_that_raised_the_alarm(example, faulty) -> None:
    view = example.view(faulty)
    alarm = list_step_ends(view)[20]
    windows = localization_windows(view, int(alarm))
    assert windows.times_ns[0] == alarm - windows.step_ns
    assert windows.times_ns[1] == alarm
    assert windows.times_ns[-1] == view.window[1]


def test_an_early_alarm_shortens_the_reference(example, faulty) -> None:
    view = example.view(faulty)
    windows = localization_windows(view, view.window[0] + 10 * SECOND)
    assert len(windows.reference) == 10


def test_steps_that_a_missing_minute_cuts_are_left_out_like_those_within(tmp_path: Path) -> None:
    write_example_dataset(tmp_path, episodes=1, seed=3, baseline_s=240, fault_s=120)
    [folder] = (tmp_path / "episodes").iterdir()
    metrics = pq.read_table(folder / "telemetry" / "metrics.parquet")
    start_ns = EpisodeView(folder).reference[1] + 10 * SECOND_NS
    end_ns = start_ns + 60 * SECOND_NS
    times = metrics["time"].cast(pa.int64()).to_numpy()
    kept = metrics.filter(pa.array((times < start_ns) | (times >= end_ns)))
    pq.write_table(kept, folder / "telemetry" / "metrics.parquet")
    view = EpisodeView(folder)
    windows = detection_windows(view)
    assert windows.step_ns == 4 * SECOND_NS
    ends = windows.times_ns
    assert ((ends <= start_ns) | (ends - windows.step_ns >= end_ns)).all()
    assert len(ends) == len(list_step_ends(view)) - 16
