"""Rules on client requests, ranked separately because the verdicts about faults use the same data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import betainc

from faultset.baselines.contract import Detection, Evidence, Ranking, TrainingFreeBaseline
from faultset.baselines.features.windows import list_step_ends
from faultset.baselines.registry import detector, localizer
from faultset.core.times import SECOND_NS
from faultset.datasets.views import EpisodeView, read_frame

SLOW_QUANTILE = 0.99
SLOW_FACTOR = 1.5
_COLUMNS = ("scheduled", "endpoint", "latency_ns", "outcome")


@dataclass(frozen=True, kw_only=True)
class ClassifiedRequests:
    """Requests classified as good or bad."""

    known_ns: npt.NDArray[np.int64]
    """When the request can be classified, UTC nanoseconds."""
    bad: npt.NDArray[np.bool_]
    endpoints: npt.NDArray[np.object_]


def classify_requests(requests: pd.DataFrame, healthy_end_ns: int) -> ClassifiedRequests:
    """Classify requests as bad if they fail or exceed 1.5 times the healthy 99 % quantile of their endpoint.

    A slow request counts as bad when it exceeds the limit, not when its response arrives.
    """
    scheduled = requests["scheduled"].to_numpy(dtype=np.int64)
    latency = requests["latency_ns"].to_numpy(dtype=float, na_value=np.nan)
    ok = (requests["outcome"] == "ok").to_numpy()
    endpoints = requests["endpoint"].astype(str).to_numpy(dtype=object)
    limit = np.full(len(requests), np.inf)
    for endpoint in np.unique(endpoints.astype(str)):
        rows = endpoints == endpoint
        # Requests that end after the healthy time may be affected by the fault.
        healthy_latency = latency[rows & ok & (scheduled + np.nan_to_num(latency, nan=np.inf) < healthy_end_ns)]
        if len(healthy_latency):
            limit[rows] = SLOW_FACTOR * np.quantile(healthy_latency, SLOW_QUANTILE)
    slow = ~(latency <= limit)
    waited = np.where(np.isfinite(latency), np.minimum(latency, limit), limit)
    # Without a limit, an unfinished request is not classified before the end of the data.
    horizon = float(scheduled.max() - scheduled.min()) if len(scheduled) else 0.0
    known_ns = scheduled + np.where(np.isfinite(waited), waited, horizon).astype(np.int64)
    return ClassifiedRequests(known_ns=known_ns, bad=~ok | slow, endpoints=endpoints)


def _read_classified_requests(episode: EpisodeView, healthy_end_ns: int) -> ClassifiedRequests:
    return episode.once(
        ("classified requests", healthy_end_ns),
        lambda: classify_requests(read_frame(episode, "requests", _COLUMNS), healthy_end_ns),
    )


@detector(
    "sli-rule-detector",
    title="SLI rule",
    paper="None; a simplified form of the test behind dataset verdicts",
    kind="rule",
    tables=("requests",),
    needs=("sli",),
    complexity="O(R·T), R requests",
)
class SLIRuleDetector(TrainingFreeBaseline):
    """Detect when clients see more bad requests than in the reference.

    A sample is anomalous if its number of bad requests has a binomial tail probability below `level` and is at least
    `min_share` of all requests.

    References
    ----------
    None; an alert on the error budget.
    """

    def __init__(self, *, level: float = 1e-4, min_share: float = 0.01) -> None:
        self.level = level
        self.min_share = min_share

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every sample after the reference by the rarity of its bad requests."""
        threshold = -np.log10(self.level)
        times = list_step_ends(episode)
        scores = np.zeros(len(times))
        _, healthy_end_ns = episode.reference
        classified = _read_classified_requests(episode, healthy_end_ns)
        healthy = classified.known_ns < healthy_end_ns
        healthy_share = (classified.bad[healthy].sum() + 1) / (healthy.sum() + 2)
        step_ns = round(episode.context.resolution_s * SECOND_NS)
        for row, end_ns in enumerate(times):
            rows = (classified.known_ns >= end_ns - step_ns) & (classified.known_ns < end_ns)
            total, bad = int(rows.sum()), int(classified.bad[rows].sum())
            if bad and bad >= self.min_share * total:
                probability = betainc(bad, total - bad + 1, healthy_share)
                scores[row] = min(300.0, -np.log10(max(probability, 1e-300)))

        def explain(row: int) -> list[Evidence]:
            known_ns, front = classified.known_ns, episode.context.workload_entry
            rows = classified.bad & (known_ns >= times[row] - 2 * step_ns) & (known_ns < times[row])
            names, counts = np.unique(classified.endpoints[rows].astype(str), return_counts=True)
            return [
                Evidence(service=front, subject=name, score=float(count), detail="bad requests")
                for name, count in sorted(zip(names, counts, strict=True), key=lambda pair: (-pair[1], pair[0]))
            ]

        return Detection.from_scores(times, scores, threshold, evidence=explain)


def measure_depths(calls: Iterable[tuple[str, str]], entry: str) -> dict[str, int]:
    """Return the longest distance of each service from the entry along declared calls, without cycles."""
    children: dict[str, list[str]] = {}
    for caller, callee in calls:
        children.setdefault(caller, []).append(callee)
    depth_of: dict[str, int] = {}

    def walk(service: str, depth: int, path: frozenset[str]) -> None:
        if service in path or depth_of.get(service, -1) >= depth:
            return
        depth_of[service] = depth
        for callee in children.get(service, []):
            walk(callee, depth + 1, path | {service})

    walk(entry, 0, frozenset())
    return depth_of


def ochiai(failed_with: float, failed: float, passed_with: float) -> float:
    """Return the Ochiai similarity of "uses the service" and "is bad" among requests.

    >>> round(ochiai(4, 4, 1), 4)
    0.8944
    """
    product = failed * (failed_with + passed_with)
    return failed_with / product**0.5 if product > 0 else 0.0


@localizer(
    "sli-rule",
    title="SLI rule",
    paper="None; spectrum-based fault localization on endpoints",
    kind="rule",
    tables=("requests", "spans"),
    needs=("sli",),
    speed="fast",
    own_detector="sli-rule-detector",
    complexity="O(R + N), R requests",
)
class SLIRule(TrainingFreeBaseline):
    """Rank services that bad requests use and good requests do not; deeper services win ties.

    The services of an endpoint come from healthy traces whose first operation ends with its name, or from the declared
    call graph if there are none.

    References
    ----------
    Abreu, Zoeteweij, van Gemund, On the accuracy of spectrum-based fault localization, TAICPART 2007, for the
    similarity.
    """

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        step_ns = round(episode.context.resolution_s * SECOND_NS)
        healthy_end_ns = min(episode.reference[1], alarm_ns)
        classified = _read_classified_requests(episode, healthy_end_ns)
        is_recent = classified.known_ns >= alarm_ns - 2 * step_ns
        bad, good = classified.endpoints[is_recent & classified.bad], classified.endpoints[is_recent & ~classified.bad]
        if len(bad) == 0:
            return Ranking.abstain()
        depths = measure_depths(episode.calls, episode.context.workload_entry)
        services_by_endpoint = episode.once(
            ("services of endpoints", healthy_end_ns),
            lambda: endpoint_services(episode, np.unique(classified.endpoints.astype(str)).tolist(), healthy_end_ns),
        )
        scores: dict[str, float] = {}
        evidence: list[Evidence] = []
        for service in episode.services:
            endpoints = [name for name, services in services_by_endpoint.items() if service in (services or depths)]
            failed_with = float(np.isin(bad.astype(str), endpoints).sum())
            passed_with = float(np.isin(good.astype(str), endpoints).sum())
            score = ochiai(failed_with, float(len(bad)), passed_with)
            # Break ties by depth.
            scores[service] = score * (1 + 1e-6 * depths.get(service, 0))
            detail = f"used by {failed_with:.0f} bad and {passed_with:.0f} good requests"
            evidence.append(Evidence(service=service, subject=", ".join(endpoints), score=score, detail=detail))
        evidence.sort(key=lambda item: (-scores[item.service], item.service))
        return Ranking.of(scores, episode.services, evidence[:10])


def endpoint_services(episode: EpisodeView, endpoints: Iterable[str], healthy_end_ns: int) -> dict[str, frozenset[str]]:
    """Return the services in healthy traces of each endpoint.

    A trace belongs to an endpoint if its first operation ends with the endpoint, because servers add a prefix.
    """
    columns = ("time", "trace_id", "parent_span_id", "service", "peer_service", "operation")
    frame = read_frame(episode, "spans", columns)
    frame = frame[frame["time"] < healthy_end_ns]
    roots = frame[frame["parent_span_id"].isna()].drop_duplicates("trace_id").set_index("trace_id")["operation"]
    services: dict[str, frozenset[str]] = {}
    for endpoint in endpoints:
        traces = roots.index[roots.astype(str).str.endswith(endpoint).to_numpy(dtype=bool)]
        rows = frame[frame["trace_id"].isin(traces)]
        names = (set(rows[column].dropna().astype(str)) for column in ("service", "peer_service"))
        services[endpoint] = frozenset().union(*names)
    return services
