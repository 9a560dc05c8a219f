"""Word an alarm as the vague complaint of a user."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from faultset.core.times import SECOND_NS
from faultset.datasets.views import EpisodeView

if TYPE_CHECKING:
    import pandas as pd

ROUNDING_S = 300
"""Users round times to five minutes."""
NEARBY_NS = 60 * SECOND_NS
"""Users complain about requests within this time before and after the alarm."""
FAILED_SHARE = 0.05
SLOWER, SLOWER_NS = 1.5, 25_000_000
"""Users notice mean latencies that grew by this factor and by this number of nanoseconds."""


def compose_complaint(view: EpisodeView, alarm_ns: int) -> str:
    """Return what a user says about an alarm: an approximate time, and the requests that fail or became slow.

    The requests come from the clients' side, which agents cannot read. If no request changed, or the source recorded
    none, the user only says that something is wrong.

    Parameters
    ----------
    view
        The episode.
    alarm_ns
        The alarm, UTC nanoseconds.
    """
    time = datetime.fromtimestamp(round(alarm_ns / SECOND_NS / ROUNDING_S) * ROUNDING_S, UTC)
    return f"since about {time:%H:%M} UTC, {_describe_symptom(view, alarm_ns)}"


def _describe_symptom(view: EpisodeView, alarm_ns: int) -> str:
    table = view.table("requests", ["scheduled", "endpoint", "latency_ns", "outcome"])
    requests = table.set_column(0, "scheduled", pc.cast(table["scheduled"], "int64")).to_pandas()
    requests["failed"] = requests["outcome"] != "ok"
    near = requests["scheduled"].between(alarm_ns - NEARBY_NS, alarm_ns + NEARBY_NS, inclusive="left")
    recent = _summarise(requests[near])
    healthy = _summarise(requests[requests["scheduled"] < view.context.reference_end_ns]).reindex(recent.index)
    failures = (recent["failed"] - healthy["failed"]).dropna()
    if len(failures) and failures.max() >= FAILED_SHARE:
        return f"{failures.idxmax()} often fails"
    growth = (recent["latency_ns"] / healthy["latency_ns"]).dropna()
    slower = growth[(growth >= SLOWER) & (recent["latency_ns"] - healthy["latency_ns"] >= SLOWER_NS)]
    return f"{slower.idxmax()} is slow" if len(slower) else "something seems to be wrong"


def _summarise(requests: pd.DataFrame) -> pd.DataFrame:
    """Return the share of failed requests and the mean latency by endpoint."""
    return requests.groupby(requests["endpoint"].astype(str))[["failed", "latency_ns"]].mean()
