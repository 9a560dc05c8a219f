"""Messages of a queue as requests, on spans with a known answer."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd

from faultset.collector.verdicts.client_requests import ComparisonWindows, as_seen_at, sli_tests
from faultset.collector.verdicts.verdict import SPAN_COLUMNS, find_deliveries, judge, void_reason

SECOND = 1_000_000_000
MESSAGES = 200
WINDOWS = ComparisonWindows(start_ns=0, reference_end_ns=80 * SECOND, onset_ns=100 * SECOND, end_ns=200 * SECOND)


def span(at_ns: int, name: str, parent: str | None, service: str, kind: str, **attributes: Any) -> dict[str, Any]:
    given = {key.replace("_", "."): value for key, value in attributes.items()}
    failed = given.pop("failed", False)
    return {
        "time": pd.Timestamp(at_ns, tz="UTC"),
        "span_id": name,
        "parent_span_id": parent,
        "service": service,
        "kind": kind,
        "duration_ns": SECOND // 100,
        "status": "error" if failed else "unset",
        "attributes": json.dumps(given),
    }


def orders(*, stops_at: int = MESSAGES, fails_from: int = MESSAGES, seen: float = 1.0) -> pd.DataFrame:
    """One order a second; accounting goes on with its trace, fraud-detection links to it in a trace of its own."""
    rng = np.random.default_rng(0)
    rows = []
    for second in range(MESSAGES):
        at_ns, sent = second * SECOND + 1, f"a{second}"
        rows.append(span(at_ns, sent, "p", "checkout", "producer", messaging_destination_name="orders"))
        if second < stops_at and rng.random() < seen:
            failed = second >= fails_from
            rows.append(span(at_ns + SECOND // 10, f"b{second}", sent, "accounting", "consumer", failed=failed))
        link = {"otel_links": [f"{second:032x}-{sent}"]}
        rows.append(span(at_ns + SECOND // 10, f"c{second}", None, "fraud-detection", "consumer", **link))
    return pd.DataFrame(rows, columns=list(SPAN_COLUMNS))


def fired(messages: pd.DataFrame) -> set[tuple[str, str]]:
    return {(t.endpoint, t.test) for t in sli_tests(as_seen_at(messages, 200 * SECOND), WINDOWS) if t.fires}


def clients() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "scheduled": pd.to_datetime(np.sort(rng.integers(0, 200 * SECOND, 2000)), unit="ns", utc=True),
            "endpoint": "search",
            "latency_ns": pd.array(rng.lognormal(16.5, 0.3, 2000).astype("int64"), dtype="Int64"),
            "status": pd.array([200] * 2000, dtype="Int32"),
            "outcome": "ok",
        }
    )


def test_a_message_is_one_request_for_each_service_that_consumes_it_by_parent_or_by_link() -> None:
    found = find_deliveries(orders(), healthy_until_ns=80 * SECOND)
    assert found.groupby("endpoint").size().to_dict() == {
        "orders to accounting": MESSAGES,
        "orders to fraud-detection": MESSAGES,
    }
    assert set(found["outcome"]) == {"ok"}
    assert set(found["latency_ns"]) == {SECOND // 10 + SECOND // 100}
    assert fired(found) == set()


def test_a_consumer_that_stops_fails_those_who_wait_for_it_and_no_others() -> None:
    found = fired(find_deliveries(orders(stops_at=110), healthy_until_ns=80 * SECOND))
    assert found == {("orders to accounting", "error-rate"), ("orders to accounting", "completion")}


def test_a_consumer_whose_spans_fail_is_an_error_though_it_answers() -> None:
    found = fired(find_deliveries(orders(fails_from=110), healthy_until_ns=80 * SECOND))
    assert found == {("orders to accounting", "error-rate")}


def test_a_message_that_failed_first_and_was_processed_later_counts_as_processed() -> None:
    spans = orders()
    again = spans[spans["service"] == "accounting"].assign(status="error")
    again["time"] -= pd.Timedelta("50ms")
    found = find_deliveries(pd.concat([again, spans]), healthy_until_ns=80 * SECOND)
    assert len(found) == 2 * MESSAGES
    assert set(found["outcome"]) == {"ok"}


def test_a_service_of_which_only_a_sample_of_spans_is_kept_is_left_out() -> None:
    found = find_deliveries(orders(seen=0.5), healthy_until_ns=80 * SECOND)
    assert set(found["endpoint"]) == {"orders to fraud-detection"}


def test_spans_without_a_queue_have_no_messages() -> None:
    spans = orders()
    assert find_deliveries(spans.iloc[:0], healthy_until_ns=80 * SECOND).empty
    assert find_deliveries(spans[spans["kind"] == "producer"], healthy_until_ns=80 * SECOND).empty
    assert find_deliveries(spans[spans["kind"] == "consumer"], healthy_until_ns=80 * SECOND).empty


def test_a_slow_queue_is_no_fault_while_every_message_is_processed_in_time() -> None:
    spans = orders()
    late = (spans["service"] == "accounting") & (spans["time"] >= pd.Timestamp(100 * SECOND, tz="UTC"))
    spans.loc[late, "duration_ns"] = SECOND
    assert fired(find_deliveries(spans, healthy_until_ns=80 * SECOND)) == set()
    spans.loc[late, "duration_ns"] = 60 * SECOND
    assert ("orders to accounting", "error-rate") in fired(find_deliveries(spans, healthy_until_ns=80 * SECOND))


def test_an_episode_is_manifest_where_only_messages_are_left_unprocessed() -> None:
    wide = pd.DataFrame(
        {("kafka", "x"): np.zeros(200)}, index=pd.to_datetime(np.arange(1, 201) * SECOND, utc=True, unit="ns")
    )
    messages = find_deliveries(orders(stops_at=110), healthy_until_ns=80 * SECOND)
    alone = judge(clients(), wide, WINDOWS, targets=["kafka"], limit=10.0)
    beside = judge(clients(), wide, WINDOWS, messages=messages, targets=["kafka"], limit=10.0)
    assert (alone.verdict, beside.verdict) == ("silent", "manifest")
    assert not void_reason(beside.impact, faulty=["kafka"], services_reached={})
    assert beside.first_manifest_ns is not None
    assert 110 * SECOND < beside.first_manifest_ns < 120 * SECOND
