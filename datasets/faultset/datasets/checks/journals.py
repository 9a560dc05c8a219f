"""Does the journal of an episode tell of the same run as its telemetry and its label?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from faultset.datasets.format.labels import Label
from faultset.datasets.format.run_digests import WRITTEN, run_digest

_MOST_CHANGED_AT_ONCE = 3
_SLACK_NS = 5_000_000_000
"""How much later than it was made a change may be observed, on a cluster with clocks of its own."""


def journal_messages(
    journal: Sequence[Mapping[str, Any]],
    label: Label,
    times: Mapping[str, pa.ChunkedArray],
    objects: pa.Table,
) -> Iterator[str]:
    """Yield what shows that the pieces of an episode come from different runs.

    Parameters
    ----------
    times
        The column of each telemetry table that places its rows in time.
    objects
        Columns `time`, `kind` and `name` of the table of objects.
    """
    digests = [record["args"].get("digest") for record in journal if _is_note(record, WRITTEN)]
    if digests:
        # the time of an injection is in the label of an episode with a fault only
        found = run_digest(times, view_start_ns=label.view_start_ns, inject_start_ns=label.inject_start_ns)
        if digests[-1] != found:
            yield "journal, telemetry and label are not of the same run; collect the episode again"
        return
    patches = [
        (record["args"].get("name"), record["time_ns"])
        for record in journal
        if record.get("state") == "intent"
        and record.get("verb") == "patch"
        and isinstance(record.get("args"), Mapping)
        and record["args"].get("kind") == "Deployment"
        and isinstance(record.get("time_ns"), int)
        and label.view_start_ns <= record["time_ns"] < label.view_end_ns - _SLACK_NS
    ]
    if patches and not any(
        at_ns - _SLACK_NS <= seen_ns < at_ns + _SLACK_NS
        for name, at_ns in patches
        for seen_ns in _changes(objects, name)
    ):
        yield "the telemetry shows none of the changes that the journal holds; collect the episode again"


def _is_note(record: Mapping[str, Any], name: str) -> bool:
    return record.get("state") == "note" and record.get("verb") == name and isinstance(record.get("args"), Mapping)


def _changes(objects: pa.Table, name: Any) -> list[int]:
    """Return when a Deployment was seen to change."""
    times = objects["time"].cast(pa.int64()).to_pandas()
    is_deployment = (objects["kind"].to_pandas() == "Deployment") & (objects["name"].to_pandas() == name)
    # every ten seconds all objects are listed at one time; such a row tells of no change
    is_listed = times.groupby(times).transform("size") > _MOST_CHANGED_AT_ONCE
    return times[is_deployment & ~is_listed].tolist()
