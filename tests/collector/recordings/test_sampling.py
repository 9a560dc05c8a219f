from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from faultset.collector.recordings.sampling import request_counts, sample_logs, sample_spans
from faultset.core.times import SECOND_NS
from faultset.datasets.format.context import Sampling


def spans(rows: list[dict[str, Any]]) -> pa.Table:
    """Return spans with `trace`, `at_s`, `length_s` and `status`."""
    times = [round(row["at_s"] * SECOND_NS) for row in rows]
    return pa.table(
        {
            "trace_id": [f"{row['trace']:032x}" for row in rows],
            "time": pa.array(times, pa.timestamp("ns", "UTC")),
            "duration_ns": [round(row.get("length_s", 0.01) * SECOND_NS) for row in rows],
            "status": pa.array([row.get("status", "unset") for row in rows]).dictionary_encode(),
        }
    )


def test_errors_and_slow_traces_are_whole_and_others_a_share() -> None:
    rows = [{"trace": 16**7 * number, "at_s": 1 + number / 10} for number in range(16)]
    rows += [{"trace": 16**8 - 1, "at_s": 1}, {"trace": 16**8 - 1, "at_s": 2, "status": "error"}]
    rows += [{"trace": 16**8 - 2, "at_s": 1}, {"trace": 16**8 - 2, "at_s": 2, "length_s": 0.6}]
    sampled = sample_spans(spans(rows), Sampling(traces=0.25, slow_traces_s=0.5), 0, 10 * SECOND_NS)
    traces = [int(trace, 16) for trace in sampled["trace_id"].to_pylist()]
    assert traces == [16**7 * number for number in range(4)] + [16**8 - 1] * 2 + [16**8 - 2] * 2


def test_a_trace_with_an_error_after_the_chunk_is_kept_in_it() -> None:
    rows = [{"trace": 16**8 - 1, "at_s": 9.5}, {"trace": 16**8 - 1, "at_s": 10.5, "status": "error"}]
    sampled = sample_spans(spans(rows), Sampling(traces=0.0, slow_traces_s=5.0), 0, 10 * SECOND_NS)
    assert sampled["time"].cast(pa.int64()).to_pylist() == [9_500_000_000]


@pytest.mark.parametrize(("levels", "messages"), [((), ["a", "b", "c"]), (("error",), ["b", "c"])])
def test_log_lines_of_other_levels_are_left_out(levels: tuple[str, ...], messages: list[str]) -> None:
    logs = pa.table({"level": pa.array(["info", "error", None]).dictionary_encode(), "message": ["a", "b", "c"]})
    assert sample_logs(logs, Sampling(log_levels=levels))["message"].to_pylist() == messages


def test_requests_are_counted_per_step() -> None:
    counts = request_counts(np.array([0, 5, 9, 10, 24]), 0, 25, 10)
    assert counts == [(0, 10, 3), (10, 20, 1), (20, 25, 1)]
