"""Check telemetry for gaps, empty references, malformed spans and samples, and journals from a different run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from faultset.core.printable import count_text
from faultset.core.times import SECOND_NS
from faultset.datasets.checks import Finding
from faultset.datasets.format.episodes import WRITTEN, run_digest
from faultset.datasets.format.labels import Label
from faultset.datasets.format.schemas import time_column
from faultset.datasets.views import EpisodeView

_MAX_MISSED_STEPS = 3
"""Number of steps without a sample that are tolerated: a scrape may be late or missed."""


@dataclass(frozen=True, kw_only=True)
class CommonGap:
    """The longest interval of a view without a sample of any series."""

    offset_s: float
    """From the start of the view to the start of the gap."""
    length_s: float

    def __str__(self) -> str:
        return f"{self.length_s:.0f} s, {self.offset_s:.0f} s after the start of the view"


def find_common_gap(
    times_ns: npt.NDArray[np.int64], view: tuple[int, int], interval_s: float | None
) -> CommonGap | None:
    """Return the longest gap common to all series; None if samples are regular or missing.

    The step is `interval_s`, or else the median time between two samples.

    >>> times = np.array([second for second in range(60) if not 20 < second < 32]) * SECOND_NS
    >>> print(find_common_gap(times, (0, 60 * SECOND_NS), 1.0))
    12 s, 20 s after the start of the view
    """
    instants = np.unique(times_ns)
    if len(instants) < 2:
        return None
    step_ns = interval_s * SECOND_NS if interval_s else float(np.median(np.diff(instants)))
    edges = np.concatenate([[view[0]], instants, [view[1]]])
    lengths = np.diff(edges)
    longest = int(np.argmax(lengths))
    if lengths[longest] <= _MAX_MISSED_STEPS * step_ns:
        return None
    return CommonGap(offset_s=float(edges[longest] - view[0]) / SECOND_NS, length_s=float(lengths[longest]) / SECOND_NS)


pc: Any = pyarrow.compute
# pyarrow creates its compute functions at import, so type checkers cannot see them

_COUNTER_KINDS = ("counter", "bucket", "count")
"""Kinds of metrics that cannot be negative."""
_HEX = r"^[0-9a-f]+$"


@dataclass
class _Counts:
    """Number of rows with one kind of problem over all episodes."""

    odd: int = 0
    total: int = 0
    episodes: list[str] = field(default_factory=list[str])
    first: str = ""


def telemetry_findings(views: Mapping[str, EpisodeView]) -> Iterator[Finding]:
    """Yield a warning, with counts over all episodes, for each kind of row that methods may misinterpret.

    The kinds are samples that are infinite or not a number, counters below zero, spans whose parent is missing, ids
    that are not lower-case hex digits, and intervals without a sample of any series.
    """
    counts: defaultdict[str, _Counts] = defaultdict(_Counts)
    for episode in sorted(views):
        for kind, odd, total, example in (*_count_odd_samples(views[episode]), *_count_odd_spans(views[episode])):
            if odd:
                count = counts[kind]
                count.odd, count.total = count.odd + odd, count.total + total
                count.episodes.append(episode)
                count.first = count.first or example
    for kind, count in counts.items():
        message = _MESSAGES[kind].format(
            odd=f"{count.odd:,}",
            total=f"{count.total:,}",
            share=count.odd / count.total,
            episodes=count_text(len(count.episodes), "episode"),
            episode=count.episodes[0],
            example=count.first,
        )
        yield Finding(severity="warning", check="telemetry", episode=None, file=None, message=message)


_MESSAGES = {
    "nan": "{odd} of {total} samples of metrics in {episodes} are not a number (first: {episode}, {example})",
    "infinite": "{odd} of {total} samples of metrics in {episodes} are infinite (first: {episode}, {example})",
    "negative": "{odd} of {total} samples of counters in {episodes} are negative (first: {episode}, {example}); "
    "rates treat them as restarts",
    "orphans": "{odd} of {total} spans ({share:.1%}) in {episodes} have a parent that is missing (first: "
    "{episode}); their caller is unknown",
    "ids": "{odd} of {total} ids of traces and spans in {episodes} are not lower-case hex digits (first: "
    "{episode}, {example})",
    "gap": "no metric has a sample during a gap in {episodes} (first: {episode}, {example}); "
    "methods may mistake the gap for a fault",
}


def _count_odd_samples(view: EpisodeView) -> Iterator[tuple[str, int, int, str]]:
    rows = view.table("metrics", ["time", "metric", "kind", "value"])
    if not len(rows):
        return
    values = rows["value"].to_numpy()
    counting = pc.is_in(rows["kind"].cast(pa.string()), value_set=pa.array(_COUNTER_KINDS)).to_numpy()
    for kind, odd, total in (
        ("nan", np.isnan(values), len(values)),
        ("infinite", np.isinf(values), len(values)),
        ("negative", counting & (values < 0), int(counting.sum())),
    ):
        indices = np.flatnonzero(odd)
        yield kind, len(indices), total, str(rows["metric"][int(indices[0])]) if len(indices) else ""
    times = rows["time"].cast(pa.int64()).to_numpy()
    gap = find_common_gap(times, view.window, view.context.source_intervals_s.get("metrics"))
    yield "gap", int(gap is not None), 1, str(gap)


def _count_odd_spans(view: EpisodeView) -> Iterator[tuple[str, int, int, str]]:
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


COMPARED = ("metrics", "spans", "logs", "requests")
"""Tables in which anomalies can only be recognised by comparison with the reference."""


@dataclass(frozen=True, kw_only=True)
class ReferenceGaps:
    """Missing data in the metrics of an episode."""

    no_samples: bool
    """Whether the reference has no metric sample."""
    coarse_step: bool
    """Whether the sampling step is longer than the reference."""
    without_metrics: tuple[str, ...]
    """Services without metrics."""

    def __bool__(self) -> bool:
        return self.no_samples or self.coarse_step or bool(self.without_metrics)


def reference_gaps(view: EpisodeView) -> ReferenceGaps | None:
    """Return the missing data in the metrics of an episode; None if it has no metrics at all.

    Reading stops as soon as nothing can be missing.
    """
    sampled, measured = False, set[str]()
    services_of_view = set(view.services)
    reference = view.reference
    rows = 0
    for times, services in view.pieces("metrics", "time", "service"):
        rows += len(times)
        sampled = sampled or _has_any_within(times, reference)
        measured.update(str(name) for name in services.unique().to_pylist())
        if sampled and services_of_view <= measured:
            break
    if not rows:
        return None
    return ReferenceGaps(
        no_samples=not sampled,
        coarse_step=_is_coarse(view),
        without_metrics=tuple(sorted(services_of_view - measured)),
    )


def gap_messages(gaps: Mapping[str, ReferenceGaps], services: Mapping[str, int]) -> list[str]:
    """Describe the gaps of episodes, with one sentence per kind; `services` is the number of services of each."""
    empty = sorted(episode for episode, gap in gaps.items() if gap.no_samples)
    coarse = sorted(episode for episode, gap in gaps.items() if gap.coarse_step)
    silent = sorted(episode for episode, gap in gaps.items() if gap.without_metrics)
    consequence = "methods that compare metrics with the reference cannot diagnose them"
    messages = []
    if empty:
        messages.append(
            f"no metric sample in the reference of {count_text(len(empty), 'episode')} (first: {empty[0]}); "
            f"{consequence}"
        )
    if coarse:
        messages.append(
            f"the metric step is longer than the reference in {count_text(len(coarse), 'episode')} "
            f"(first: {coarse[0]}); {consequence}"
        )
    if silent:
        first = silent[0]
        messages.append(
            f"services without metrics in {count_text(len(silent), 'episode')} (first: {first}, "
            f"{len(gaps[first].without_metrics)} of {services[first]}); metric methods cannot name them"
        )
    return messages


def reference_messages(views: Mapping[str, EpisodeView]) -> list[str]:
    """Describe the missing data in the metrics of episodes."""
    gaps = {episode: gap for episode, view in views.items() if (gap := reference_gaps(view))}
    return gap_messages(gaps, {episode: len(views[episode].services) for episode in gaps})


def reference_findings(views: Mapping[str, EpisodeView]) -> Iterator[Finding]:
    """Yield a warning for each kind of gap in the references of episodes that have metrics."""
    for message in reference_messages(views):
        yield Finding(severity="warning", check="reference", episode=None, file=None, message=message)


def missing_evidence(view: EpisodeView, tables: Collection[str]) -> str | None:
    """Return why none of the tables has usable data; None if one has, or if no table is given.

    Metrics, spans, logs and requests need rows in the reference. The step of metrics must also be shorter than the
    reference. Other tables need at least one row.
    """
    reasons = [f"the table {name} is missing" for name in sorted(set(tables) - set(view.tables))]
    for name in sorted(set(tables) & set(view.tables)):
        column = time_column(name)
        if name not in COMPARED:
            if len(view.table(name, [column])):
                return None
            reasons.append(f"{name} are empty")
        elif name == "metrics" and _is_coarse(view):
            reasons.append("the step of metrics is longer than the reference")
        elif view.once(("any in the reference", name), partial(_has_any_in_reference, view, name)):
            return None
        else:
            reasons.append(f"no {name} in the reference")
    return "; ".join(reasons) or None


def _is_coarse(view: EpisodeView) -> bool:
    start_ns, end_ns = view.reference
    return view.context.sampling_step_s * SECOND_NS > end_ns - start_ns


def _has_any_in_reference(view: EpisodeView, table: str) -> bool:
    return any(_has_any_within(times, view.reference) for (times,) in view.pieces(table, time_column(table)))


def _has_any_within(times: pa.ChunkedArray, window: tuple[int, int]) -> bool:
    values = times.cast(pa.int64()).to_numpy()
    return bool(((values >= window[0]) & (values < window[1])).any())


_MAX_CHANGED_AT_ONCE = 3
_SLACK_NS = 5_000_000_000
"""Maximum difference between the times of a change and of its observation; the clocks of a cluster differ."""


def journal_messages(
    journal: Sequence[Mapping[str, Any]],
    label: Label,
    times: Mapping[str, pa.ChunkedArray],
    objects: pa.Table,
) -> Iterator[str]:
    """Yield a message for each sign that an episode's journal, telemetry and label come from different runs.

    `times` has the time column of each telemetry table, `objects` the columns `time`, `kind` and `name`.
    """
    digests = [record["args"].get("digest") for record in journal if _is_note(record, WRITTEN)]
    if digests:
        digest = run_digest(times, view_start_ns=label.view_start_ns, inject_start_ns=label.inject_start_ns)
        if digests[-1] != digest:
            yield "the journal, the telemetry and the label come from different runs; collect the episode again"
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
        for seen_ns in _find_changes(objects, name)
    ):
        yield "the telemetry shows none of the changes in the journal; collect the episode again"


def _is_note(record: Mapping[str, Any], name: str) -> bool:
    return record.get("state") == "note" and record.get("verb") == name and isinstance(record.get("args"), Mapping)


def _find_changes(objects: pa.Table, name: Any) -> list[int]:
    times = objects["time"].cast(pa.int64()).to_pandas()
    is_deployment = (objects["kind"].to_pandas() == "Deployment") & (objects["name"].to_pandas() == name)
    # every ten seconds all objects are listed with the same time; these rows are not changes
    is_listed = times.groupby(times).transform("size") > _MAX_CHANGED_AT_ONCE
    return times[is_deployment & ~is_listed].tolist()
