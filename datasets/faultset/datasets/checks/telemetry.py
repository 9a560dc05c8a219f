"""What telemetry says that can hardly be meant: odd values, odd ids, parents that are missing, common gaps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from faultset.datasets.checks.findings import Finding
from faultset.datasets.checks.gaps import find_common_gap
from faultset.datasets.views import EpisodeView

pc: Any = pyarrow.compute
# Its functions are made at import, where type checkers do not see them.

_COUNTING = ("counter", "bucket", "count")
"""Kinds of metrics that cannot be negative."""
_HEX = r"^[0-9a-f]+$"


@dataclass
class _Counts:
    """Rows of one kind, over all episodes that have any."""

    odd: int = 0
    total: int = 0
    episodes: list[str] = field(default_factory=list[str])
    first: str = ""


def telemetry_findings(views: Mapping[str, EpisodeView]) -> Iterator[Finding]:
    """Yield a warning for each kind of row that methods may misread, with its count over all episodes.

    Kinds are: samples that are not a number or infinite, counters below zero, spans whose parent is missing, ids that
    are not lower-case hex digits, and stretches of time without a sample of any series.
    """
    counts: defaultdict[str, _Counts] = defaultdict(_Counts)
    for episode in sorted(views):
        for kind, odd, total, example in (*_metric_counts(views[episode]), *_span_counts(views[episode])):
            if odd:
                found = counts[kind]
                found.odd, found.total = found.odd + odd, found.total + total
                found.episodes.append(episode)
                found.first = found.first or example
    for kind, found in counts.items():
        message = _SENTENCES[kind].format(
            odd=f"{found.odd:,}",
            total=f"{found.total:,}",
            share=found.odd / found.total,
            episodes=len(found.episodes),
            noun="episode" if len(found.episodes) == 1 else "episodes",
            episode=found.episodes[0],
            example=found.first,
        )
        yield Finding(severity="warning", check="telemetry", episode=None, file=None, message=message)


_SENTENCES = {
    "nan": "{odd} of {total} samples of metrics in {episodes} {noun} are not a number (first: {episode}, {example})",
    "infinite": "{odd} of {total} samples of metrics in {episodes} {noun} are infinite (first: {episode}, {example})",
    "negative": "{odd} of {total} samples of counters in {episodes} {noun} are negative (first: {episode}, {example}); "
    "rates take them for restarts",
    "orphans": "{odd} of {total} spans ({share:.1%}) in {episodes} {noun} have a parent that is missing (first: "
    "{episode}); their caller is unknown",
    "ids": "{odd} of {total} ids of traces and spans in {episodes} {noun} are not lower-case hex digits (first: "
    "{episode}, {example})",
    "gap": "in {episodes} {noun} no series of metrics has a sample for a while (first: {episode}, {example}); "
    "methods may take the gap for a fault",
}


def _metric_counts(view: EpisodeView) -> Iterator[tuple[str, int, int, str]]:
    rows = view.table("metrics", ["time", "metric", "kind", "value"])
    if not len(rows):
        return
    values = rows["value"].to_numpy()
    counting = pc.is_in(rows["kind"].cast(pa.string()), value_set=pa.array(_COUNTING)).to_numpy()
    for kind, odd, total in (
        ("nan", np.isnan(values), len(values)),
        ("infinite", np.isinf(values), len(values)),
        ("negative", counting & (values < 0), int(counting.sum())),
    ):
        where = np.flatnonzero(odd)
        yield kind, len(where), total, str(rows["metric"][int(where[0])]) if len(where) else ""
    times = rows["time"].cast(pa.int64()).to_numpy()
    gap = find_common_gap(times, view.window, view.context.source_intervals_s.get("metrics"))
    yield "gap", int(gap is not None), 1, str(gap)


def _span_counts(view: EpisodeView) -> Iterator[tuple[str, int, int, str]]:
    rows = view.table("spans", ["trace_id", "span_id", "parent_span_id"])
    if not len(rows):
        return
    parents = rows["parent_span_id"]
    orphans = pc.and_(pc.is_valid(parents), pc.invert(pc.is_in(parents, value_set=rows["span_id"].combine_chunks())))
    yield "orphans", pc.sum(orphans).as_py() or 0, len(rows), ""
    odd, total, example = 0, 0, ""
    for column in rows.columns:
        ids = column.drop_null()
        others = ids.filter(pc.invert(pc.match_substring_regex(ids, _HEX)))
        odd, total, example = odd + len(others), total + len(ids), example or (others[0].as_py() if len(others) else "")
    yield "ids", odd, total, example
