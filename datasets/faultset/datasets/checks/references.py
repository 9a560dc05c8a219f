"""Whether episodes have telemetry by which methods can tell what is healthy."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from faultset.core.times import SECOND_NS
from faultset.datasets.checks.findings import Finding
from faultset.datasets.format.schemas import time_column
from faultset.datasets.views import EpisodeView

COMPARED = ("metrics", "spans", "logs", "requests")
"""Tables that say nothing by themselves: what is unusual in them shows against the reference only."""


@dataclass(frozen=True, kw_only=True)
class ReferenceGaps:
    """What the metrics of an episode lack."""

    no_samples: bool
    """No metric sample lies in the reference."""
    coarse_step: bool
    """The sampling step is longer than the reference."""
    without_metrics: tuple[str, ...]
    """Candidates that have no metric."""

    def __bool__(self) -> bool:
        return self.no_samples or self.coarse_step or bool(self.without_metrics)


def reference_gaps(view: EpisodeView) -> ReferenceGaps | None:
    """Say what the metrics of an episode lack; None where it has no metrics at all, which is seen at once.

    Only as much of the table is read as it takes to see that nothing is missing.
    """
    sampled, known = False, set[str]()
    wanted = set(view.services)
    reference = view.reference
    rows = 0
    for times, services in view.pieces("metrics", "time", "service"):
        rows += len(times)
        sampled = sampled or _any_within(times, reference)
        known.update(str(name) for name in services.unique().to_pylist())
        if sampled and wanted <= known:
            break
    if not rows:
        return None
    return ReferenceGaps(
        no_samples=not sampled,
        coarse_step=_is_coarse(view),
        without_metrics=tuple(sorted(wanted - known)),
    )


def gap_messages(found: Mapping[str, ReferenceGaps], candidates: Mapping[str, int]) -> list[str]:
    """Put gaps into sentences, one for each kind.

    Parameters
    ----------
    found
        Episode -> its gaps.
    candidates
        Episode -> how many candidates it has.
    """
    empty = sorted(episode for episode, gaps in found.items() if gaps.no_samples)
    coarse = sorted(episode for episode, gaps in found.items() if gaps.coarse_step)
    silent = sorted(episode for episode, gaps in found.items() if gaps.without_metrics)
    consequence = "methods that compare metrics with the reference cannot answer there"
    messages = []
    if empty:
        messages.append(
            f"{len(empty)} episodes have no metric sample in the reference (first: {empty[0]}); {consequence}"
        )
    if coarse:
        messages.append(
            f"{len(coarse)} episodes have a step longer than the reference (first: {coarse[0]}); {consequence}"
        )
    if silent:
        first = silent[0]
        messages.append(
            f"{len(silent)} episodes have candidates without any metric (first: {first}, "
            f"{len(found[first].without_metrics)} of {candidates[first]}); metric methods cannot name them"
        )
    return messages


def reference_messages(views: Mapping[str, EpisodeView]) -> list[str]:
    """Say in sentences what the metrics of some episodes lack; an empty list where they lack nothing."""
    found = {episode: gaps for episode, view in views.items() if (gaps := reference_gaps(view))}
    return gap_messages(found, {episode: len(views[episode].services) for episode in found})


def reference_findings(views: Mapping[str, EpisodeView]) -> Iterator[Finding]:
    """Yield a warning for each kind of episode in which metric methods have nothing to compare with.

    Kinds are: no metric sample in the reference, a sampling step longer than the reference, and candidates without any
    metric. Episodes without metrics at all are not named: that is seen at once.
    """
    for message in reference_messages(views):
        yield Finding(severity="warning", check="reference", episode=None, file=None, message=message)


def missing_evidence(view: EpisodeView, tables: Collection[str]) -> str | None:
    """Say why nothing can be told from some tables of an episode; None where something can.

    Metrics, spans, logs and requests need rows in the reference, metrics also a step that fits into it; of other tables
    any row will do. Where no table is asked for, nothing is missing.
    """
    reasons = [f"there is no table {name}" for name in sorted(set(tables) - set(view.tables))]
    for name in sorted(set(tables) & set(view.tables)):
        column = time_column(name)
        if name not in COMPARED:
            if len(view.table(name, [column])):
                return None
            reasons.append(f"{name} are empty")
        elif name == "metrics" and _is_coarse(view):
            reasons.append("the step of metrics is longer than the reference")
        elif view.once(("any in the reference", name), partial(_any_in_reference, view, name)):
            return None
        else:
            reasons.append(f"no {name} in the reference")
    return "; ".join(reasons) or None


def _is_coarse(view: EpisodeView) -> bool:
    start_ns, end_ns = view.reference
    return view.context.sampling_step_s * SECOND_NS > end_ns - start_ns


def _any_in_reference(view: EpisodeView, table: str) -> bool:
    return any(_any_within(times, view.reference) for (times,) in view.pieces(table, time_column(table)))


def _any_within(times: pa.ChunkedArray, window: tuple[int, int]) -> bool:
    values = times.cast(pa.int64()).to_numpy()
    return bool(((values >= window[0]) & (values < window[1])).any())
