"""Whether episodes have metrics by which methods can tell what is healthy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from faultset.core.times import SECOND_NS
from faultset.datasets.checks.findings import Finding
from faultset.datasets.views import EpisodeView


def reference_findings(views: Mapping[str, EpisodeView]) -> Iterator[Finding]:
    """Yield a warning for each kind of episode in which metric methods have nothing to compare with.

    Kinds are: no metric sample in the reference, a sampling step longer than the reference, and candidates without any
    metric. Episodes without metrics at all are not named: that is seen at once.
    """
    empty: list[str] = []
    coarse: list[str] = []
    silent: dict[str, int] = {}
    for episode, view in sorted(views.items()):
        metrics = view.table("metrics", ["time", "service"])
        if not len(metrics):
            continue
        start_ns, end_ns = view.reference
        times = metrics["time"].cast(pa.int64())
        if not ((times.to_numpy() >= start_ns) & (times.to_numpy() < end_ns)).any():
            empty.append(episode)
        if view.context.sampling_step_s * SECOND_NS > end_ns - start_ns:
            coarse.append(episode)
        known = {str(name) for name in metrics["service"].unique().to_pylist()}
        missing = len(set(view.services) - known)
        if missing:
            silent[episode] = missing
    consequence = "methods that compare metrics with the reference cannot answer there"
    if empty:
        yield _warning(
            f"{len(empty)} episodes have no metric sample in the reference (first: {empty[0]}); {consequence}"
        )
    if coarse:
        yield _warning(
            f"{len(coarse)} episodes have a step longer than the reference (first: {coarse[0]}); {consequence}"
        )
    if silent:
        first, count = next(iter(silent.items()))
        yield _warning(
            f"{len(silent)} episodes have candidates without any metric (first: {first}, {count} of "
            f"{len(views[first].services)}); metric methods cannot name them"
        )


def _warning(message: str) -> Finding:
    return Finding(severity="warning", check="reference", episode=None, file=None, message=message)
