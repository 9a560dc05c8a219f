from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from faultset.core.errors import UsageError
from faultset.datasets.metrics.frames import wide_frame
from faultset.datasets.metrics.roles import builtin_catalogue

START_NS = 1_760_000_000_000_000_000
NAN = float("nan")


@pytest.fixture
def wide(rows_of):
    def make(rows, seconds=5, step_s=1.0, **options) -> pd.DataFrame:
        return wide_frame(rows_of("metrics", rows), START_NS, START_NS + seconds * 10**9, step_s, **options)

    return make


def values(frame: pd.DataFrame, metric: str, service: str = "geo") -> list[float]:
    return frame[service, metric].tolist()


def test_a_counter_becomes_its_growth_per_second(wide, sample):
    frame = wide([sample("c_total", at + 0.5, value, "counter") for at, value in enumerate([10, 12, 15, 15, 19])])
    np.testing.assert_array_equal(values(frame, "c_total"), [NAN, 2, 3, 0, 4])


def test_a_counter_that_falls_began_again_at_zero(wide, sample):
    frame = wide([sample("c_total", at + 0.5, value, "counter") for at, value in enumerate([10, 14, 3, 4, 4])])
    np.testing.assert_array_equal(values(frame, "c_total"), [NAN, 4, 3, 1, 0])


def test_infinite_samples_and_counters_below_zero_are_missing(wide, sample):
    rows = [sample("c_total", at + 0.5, value, "counter") for at, value in enumerate([10, -5, 12, 15, np.inf])]
    rows += [sample("g", at + 0.5, value) for at, value in enumerate([-1, np.inf, 2, -np.inf, 4])]
    frame = wide(rows)
    np.testing.assert_array_equal(values(frame, "c_total"), [NAN, NAN, NAN, 3, NAN])
    np.testing.assert_array_equal(values(frame, "g"), [-1, NAN, 2, NAN, 4])


def test_a_rate_over_a_gap_is_the_average_and_stands_at_its_end(wide, sample):
    rows = [sample("c_total", at, value, "counter") for at, value in [(0.5, 10), (1.5, 12), (4.5, 21)]]
    np.testing.assert_allclose(values(wide(rows), "c_total"), [NAN, 2, NAN, NAN, 3])


def test_a_longer_step_divides_all_growth_by_all_time(wide, sample):
    rows = [sample("c_total", at, value, "counter") for at, value in [(0, 0), (1, 4), (2, 4), (3, 5), (4, 9), (5, 9)]]
    np.testing.assert_allclose(values(wide(rows, seconds=6, step_s=3.0), "c_total"), [2.0, 5 / 3])


def test_gauges_stay_as_they_are_and_absence_stays_absent(wide, sample):
    rows = [sample("g", at, value) for at, value in [(0.2, 5), (1.2, 6), (4.2, 7)]]
    np.testing.assert_array_equal(values(wide(rows), "g"), [5, 6, NAN, NAN, 7])


def test_several_samples_of_a_gauge_in_one_step_are_averaged(wide, sample):
    rows = [sample("g", at, value) for at, value in [(0.1, 1), (0.5, 2), (0.9, 6)]]
    assert values(wide(rows, seconds=1), "g") == [3.0]


def test_rates_and_memory_of_several_pods_are_summed(wide, sample):
    rows = []
    for pod, offset in (("geo-1", 0), ("geo-2", 100)):
        for at in range(3):
            memory = sample("container_memory_rss", at + 0.5, 10 + offset, pod=pod)
            cpu = sample("container_cpu_usage_seconds_total", at + 0.5, offset + at * (1 + offset), "counter", pod=pod)
            rows += [memory, cpu]
    frame = wide(rows, seconds=3)
    assert values(frame, "container_memory_rss") == [120, 120, 120]
    np.testing.assert_array_equal(values(frame, "container_cpu_usage_seconds_total"), [NAN, 102, 102])


def test_other_gauges_are_combined_as_the_catalogue_says(wide, sample):
    rows = [
        sample(metric, 0.5, value, pod=pod)
        for metric in ("up", "container_start_time_seconds", "unheard_of")
        for pod, value in (("geo-1", 0.0), ("geo-2", 1.0))
    ]
    frame = wide(rows, seconds=1)
    assert values(frame, "up") == [0.0]
    assert values(frame, "container_start_time_seconds") == [1.0]
    assert values(frame, "unheard_of") == [0.5]


def test_a_label_that_makes_the_meaning_stays_in_the_name(wide, sample):
    rows = [
        sample("kube_pod_status_phase", 0.5, value, labels=json.dumps({"phase": phase}))
        for phase, value in (("Pending", 0), ("Running", 1))
    ]
    frame = wide(rows, seconds=1)
    assert frame.columns.get_level_values("metric").tolist() == [
        'kube_pod_status_phase{phase="Pending"}',
        'kube_pod_status_phase{phase="Running"}',
    ]


def histogram(sample, counts, sums, status="200", label="http_response_status_code", **more):
    labels = json.dumps({label: status})
    rows = []
    for at, (count, total) in enumerate(zip(counts, sums, strict=True)):
        if count is not None:
            rows += [
                sample("http_server_request_duration_seconds_count", at + 0.5, count, "count", labels=labels, **more),
                sample("http_server_request_duration_seconds_sum", at + 0.5, total, "sum", labels=labels, **more),
                sample("http_server_request_duration_seconds_bucket", at + 0.5, count, "bucket", labels=labels, **more),
            ]
    return rows


def test_a_histogram_becomes_mean_and_rate_without_buckets(wide, sample):
    frame = wide(histogram(sample, [0, 4, 4, 9], [0.0, 0.2, 0.2, 1.2]), seconds=4)
    family = "http_server_request_duration_seconds"
    np.testing.assert_allclose(values(frame, f"{family}_mean"), [NAN, 0.05, NAN, 0.2])
    np.testing.assert_allclose(values(frame, f"{family}_rate"), [NAN, 4, 0, 5])
    np.testing.assert_allclose(values(frame, f"{family}_error_rate"), [NAN, 0, 0, 0])
    assert len(frame.columns) == 3


def test_the_mean_over_pods_is_weighted_by_what_they_served(wide, sample):
    rows = histogram(sample, [0, 9], [0.0, 0.9]) + histogram(sample, [0, 1], [0.0, 1.1], pod="geo-2")
    frame = wide(rows, seconds=2)
    np.testing.assert_allclose(values(frame, "http_server_request_duration_seconds_mean"), [NAN, 0.2])


def test_the_first_error_counts_although_its_series_begins_with_it(wide, sample):
    rows = histogram(sample, [0, 5, 9, 14], [0.0, 1, 2, 3])
    rows += histogram(sample, [None, None, 2, 2], [None, None, 1.0, 1.0], status="500")
    frame = wide(rows, seconds=4)
    family = "http_server_request_duration_seconds"
    np.testing.assert_allclose(values(frame, f"{family}_error_rate"), [NAN, 0, 2, 0])
    np.testing.assert_allclose(values(frame, f"{family}_rate"), [NAN, 5, 6, 5])
    np.testing.assert_allclose(values(frame, f"{family}_mean"), [NAN, 0.2, 2 / 6, 0.2])


@pytest.mark.parametrize(("status", "failed"), [("200", 0), ("404", 0), ("503", 4), ("0", 4)])
def test_server_errors_and_missing_answers_are_errors(wide, sample, status, failed):
    frame = wide(histogram(sample, [0, 4], [0.0, 1.0], status=status), seconds=2)
    np.testing.assert_array_equal(values(frame, "http_server_request_duration_seconds_error_rate"), [NAN, failed])


@pytest.mark.parametrize(
    "label",
    ["rpc_status_code", "rpc_grpc_status_code", "rpc_response_status_code", "rpc_connect_rpc_error_code"],
)
@pytest.mark.parametrize(("status", "failed"), [("OK", 0), ("0", 0), ("4", 4), ("DEADLINE_EXCEEDED", 4)])
def test_every_status_label_of_rpcs_tells_errors_from_successes(wide, sample, label, status, failed):
    frame = wide(histogram(sample, [0, 4], [0.0, 1.0], status=status, label=label), seconds=2)
    np.testing.assert_array_equal(values(frame, "http_server_request_duration_seconds_error_rate"), [NAN, failed])


def test_lost_samples_of_steady_pods_leave_holes_and_change_nothing_else(wide, sample):
    seconds, rows = 30, []
    for pod, each in (("geo-1", 1), ("geo-2", 5)):
        for at in range(seconds):
            rows += [sample(name, at + 0.5, each, pod=pod) for name in ("container_memory_rss", "g")]
            rows.append(sample("c_total", at + 0.5, each * at, "counter", pod=pod))
        for status in ("200", "500"):
            counts = [4 * at for at in range(seconds)]
            rows += histogram(sample, counts, [each * count for count in counts], status=status, pod=pod)
    inner = [START_NS + 2 * 10**9 < row["time"] < START_NS + (seconds - 1) * 10**9 for row in rows]
    kept = np.random.default_rng(0).random(len(rows)) >= 0.3
    lossy = wide([row for row, keep, inside in zip(rows, kept, inner, strict=True) if keep or not inside], seconds)
    complete = wide(rows, seconds)
    assert 0 < lossy.isna().to_numpy().sum() - complete.isna().to_numpy().sum() < lossy.size / 5
    pd.testing.assert_frame_equal(lossy, complete.where(lossy.notna()))


def test_a_pod_that_is_away_for_longer_is_missing_from_the_sum(wide, sample):
    rows = [
        sample("container_memory_rss", at + 0.5, 10, pod=pod)
        for pod, away in (("geo-1", range(0)), ("geo-2", range(10, 20)))
        for at in range(30)
        if at not in away
    ]
    assert values(wide(rows, 30), "container_memory_rss") == [20] * 10 + [10] * 10 + [20] * 10


def test_jitter_at_the_edge_of_a_step_makes_no_holes(wide, sample):
    rng = np.random.default_rng(3)
    moments = np.arange(1, 60) + rng.normal(0, 0.02, 59)
    frame = wide([sample("g", moment, number) for number, moment in enumerate(moments)], seconds=60)
    found = np.array(values(frame, "g"))
    assert np.isnan(found).sum() == 1
    assert sorted(found[~np.isnan(found)]) == list(range(59))


def test_a_lost_sample_stays_a_hole_beside_jitter(wide, sample):
    moments = [0.99, 2.01, 2.98, 4.99, 6.02, 7.01]
    frame = wide([sample("g", moment, moment) for moment in moments], seconds=8)
    assert np.isnan(values(frame, "g")).sum() == 2


def test_samples_outside_the_window_are_left_out(wide, sample):
    rows = [sample("g", at, at) for at in (-0.5, 0.5, 4.5, 5.0)]
    np.testing.assert_array_equal(values(wide(rows), "g"), [0.5, NAN, NAN, NAN, 4.5])


def test_rows_in_any_order_give_the_same_frame(wide, sample):
    rows = [
        sample(metric, at + 0.5, at * at, kind, pod=pod)
        for at in range(5)
        for metric, kind in (("g", "gauge"), ("c_total", "counter"))
        for pod in ("geo-1", "geo-2")
    ]
    shuffled = [rows[number] for number in np.random.default_rng(0).permutation(len(rows))]
    pd.testing.assert_frame_equal(wide(rows), wide(shuffled))


def test_rows_without_a_service_are_left_out(wide, sample):
    assert wide([sample("g", 0.5, 1, service=None)]).shape == (5, 0)


def test_the_index_is_a_regular_grid_in_utc(wide, sample):
    frame = wide([sample("g", 0.5, 1)], seconds=5, step_s=2.0)
    assert frame.index.tolist() == [pd.Timestamp(START_NS + number * 2 * 10**9, tz="UTC") for number in range(3)]
    assert frame.index.name == "time"
    assert str(frame.index.dtype) == "datetime64[ns, UTC]"
    assert frame.columns.names == ["service", "metric"]


def test_an_empty_table_gives_an_empty_frame(wide):
    frame = wide([])
    assert frame.shape == (5, 0)
    assert frame.columns.names == ["service", "metric"]


def test_a_step_of_zero_is_refused(wide, sample):
    with pytest.raises(UsageError, match="above zero"):
        wide([sample("g", 0.5, 1)], step_s=0.0)


def test_a_catalogue_of_the_caller_decides(wide, sample):
    row = {"source": "mine", "metric": "g*", "role": "cpu", "unit": "1", "kind": "gauge", "combine": "max"}
    catalogue = builtin_catalogue().extended([row])
    rows = [sample("g1", 0.5, value, pod=pod) for pod, value in (("geo-1", 1), ("geo-2", 5))]
    assert values(wide(rows, seconds=1, catalogue=catalogue), "g1") == [5.0]


@pytest.mark.parametrize("step_s", [1.0, 2.0, 3.0, 7.0])
@pytest.mark.parametrize("first_s", [-3, 0, 2])
def test_series_on_one_clock_become_what_they_become_on_clocks_of_their_own(rows_of, sample, step_s, first_s):
    rng = np.random.default_rng(0)
    rows = [sample(name, first_s + at, float(rng.normal()) + at) for name in ("a", "b", "c") for at in range(20)]
    rows += [sample("d_total", first_s + at, float(2 * at), "counter") for at in range(20)]
    end_ns = START_NS + 15 * 10**9
    together = wide_frame(rows_of("metrics", rows), START_NS, end_ns, step_s)
    apart = [wide_frame(rows_of("metrics", rows[at : at + 20]), START_NS, end_ns, step_s) for at in range(0, 80, 20)]
    # a single series has no clock in common with another
    pd.testing.assert_frame_equal(together, pd.concat(apart, axis=1).sort_index(axis=1))
