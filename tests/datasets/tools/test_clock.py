from __future__ import annotations

import pytest

from faultset.core.errors import UsageError
from faultset.datasets import Dataset
from faultset.datasets.tools.clock import ViewClock

from .conftest import POD_FAILURE


def test_the_clock_stands_some_seconds_after_an_alarm_and_never_outside_the_view(sample: Dataset) -> None:
    context = sample.view(POD_FAILURE).context
    alarm = context.view_start_ns + 10_000_000_000
    assert ViewClock.after(context, alarm, 5).now_ns == alarm + 5_000_000_000
    assert ViewClock.after(context, alarm, 1e6).now_ns == context.view_end_ns
    assert ViewClock(context, 0).now_ns > context.view_start_ns


def test_waiting_ends_at_the_end_of_the_view(sample: Dataset) -> None:
    context = sample.view(POD_FAILURE).context
    clock = ViewClock(context, context.reference_end_ns)
    assert clock.wait(5) == 5
    assert clock.wait(1e9) == (context.view_end_ns - context.reference_end_ns) / 1e9 - 5
    assert clock.left_s == 0
    with pytest.raises(UsageError, match="from 0"):
        clock.wait(-1)


def test_no_tool_shows_what_comes_after_now(sample: Dataset) -> None:
    context = sample.view(POD_FAILURE).context
    early = sample[POD_FAILURE].tools(ViewClock(context, context.reference_end_ns))
    assert early.call("list_events").status == "empty"
    rows = early.call("query", {"sql": "select epoch_ns(max(time)) from metrics"}).text.split("\n")[1]
    assert int(rows) < context.reference_end_ns
    for table in ("logs", "events", "objects", "spans"):
        times = early.recording.table(table)["time"].cast("int64").to_pylist()
        assert all(time < context.reference_end_ns for time in times)
    assert early.call("wait", {"seconds": 60}).status == "ok"
    assert early.call("list_events").status == "ok"


def test_a_span_is_known_only_when_it_has_ended(sample: Dataset) -> None:
    whole = sample.view(POD_FAILURE).spans()
    longest = whole.iloc[int(whole["duration_ns"].to_numpy().argmax())]
    context = sample.view(POD_FAILURE).context
    end = longest["time"].value + int(longest["duration_ns"])
    before, after = (
        sample[POD_FAILURE].tools(ViewClock(context, now)).recording.frame("spans") for now in (end - 1, end)
    )
    assert longest["span_id"] not in set(before["span_id"])
    assert longest["span_id"] in set(after["span_id"])
