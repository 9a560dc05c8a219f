"""Messages of a queue as requests: who publishes one waits for every service that consumes it.

No client waits for the consumers of a queue, and yet somebody misses what they do not do: an order that is never
accounted for, a fraud that nobody looks for. The SLI-impact test therefore takes every pair of a published message and
a service that consumes such messages for one more request, which is answered when the service has processed it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pandas as pd

from faultset.collector.verdicts.client_requests import UNTIMED

SPAN_COLUMNS = ("time", "span_id", "parent_span_id", "service", "kind", "duration_ns", "status", "attributes")
"""Columns of the table `spans` that are read."""
LEAST_PROCESSED = 0.9
"""Share of the healthy time's messages that a service processes at least when its deliveries are looked at."""


def deliveries(spans: pd.DataFrame, *, healthy_until_ns: int) -> pd.DataFrame:
    """Return a row for every published message and every service that consumes messages of that destination.

    A consumer's span tells its message by its parent or by a link to the producer's span, as the semantic conventions
    of OpenTelemetry for messaging have it. Of several spans for one message the first that did not fail counts.
    Services of which the healthy time shows too few of the messages are left out, for their spans are not all there.

    Parameters
    ----------
    spans
        Rows of the table `spans`, with at least the columns `SPAN_COLUMNS`.
    healthy_until_ns
        End of the healthy time, in UTC nanoseconds.

    Returns
    -------
    DataFrame
        `scheduled` (when the message was published), `endpoint` (such as "orders to accounting"),
        `outcome` ("ok", "http_error" where the consumer's span failed, "unfinished"), `status` (missing),
        `latency_ns` (from the publication until the message was processed; missing for unfinished ones), and
        `untimed` (true: how long a message waits is judged only by whether it is processed in time).
    """
    kind = spans["kind"].astype(str)
    published, consumed = spans[kind == "producer"], spans[kind == "consumer"]
    messages = pd.DataFrame(
        {
            "message": published["span_id"].astype(str).to_numpy(),
            "scheduled": published["time"].astype("int64").to_numpy(),
            "destination": _destinations(published),
        }
    )
    pairs = pd.DataFrame(list(_consumptions(consumed)), columns=["message", "service", "end", "failed"])
    pairs = pairs.sort_values(["failed", "end"]).drop_duplicates(["message", "service"])
    consumers = pairs.merge(messages, on="message")[["destination", "service"]].drop_duplicates()
    expected = messages.merge(consumers, on="destination").merge(pairs, on=["message", "service"], how="left")
    expected["endpoint"] = expected["destination"].astype(str) + " to " + expected["service"].astype(str)
    unprocessed = expected["end"].isna()
    healthy = expected["scheduled"] < healthy_until_ns
    shares = (~unprocessed)[healthy].groupby(expected["endpoint"][healthy]).mean()
    complete = expected["endpoint"].isin(shares.index[shares >= LEAST_PROCESSED])
    outcome = np.where(unprocessed, "unfinished", np.where(expected["failed"].eq(True), "http_error", "ok"))
    found = pd.DataFrame(
        {
            "scheduled": pd.to_datetime(expected["scheduled"], unit="ns", utc=True),
            "endpoint": expected["endpoint"],
            "outcome": outcome,
            "status": pd.array([pd.NA] * len(expected), dtype="Int32"),
            "latency_ns": expected["end"].astype("Int64") - expected["scheduled"],
            UNTIMED: True,
        }
    )
    return found[complete].sort_values("scheduled", ignore_index=True)


def _destinations(spans: pd.DataFrame) -> list[str]:
    return [str(json.loads(text).get("messaging.destination.name", "")) for text in spans["attributes"]]


def _consumptions(spans: pd.DataFrame) -> Iterator[tuple[str, str, int, bool]]:
    """Yield (producer's span, consuming service, end, whether it failed) for every message of a consumer's span."""
    ends = spans["time"].astype("int64").to_numpy() + spans["duration_ns"].to_numpy(dtype="int64")
    rows = zip(spans["parent_span_id"], spans["attributes"], spans["service"], ends, spans["status"], strict=True)
    for parent, text, service, end, status in rows:
        links = json.loads(text).get("otel.links", ())
        for message in {str(link).rpartition("-")[2] for link in links} or {parent}:
            if isinstance(message, str):
                yield message, str(service), int(end), str(status) == "error"
