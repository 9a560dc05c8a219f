"""Rank services by all evidence in the telemetry, except symptoms explained by the services they call."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from faultset.baselines.contract import Evidence, Ranking, TrainingFreeBaseline
from faultset.baselines.features.calls import CallSeries, read_call_graph, read_call_series
from faultset.baselines.features.evidence import ServiceEvidence, count_evidence, log_evidence, metric_evidence
from faultset.baselines.features.object_states import SAMPLING_NS, Rollout, successful_rollouts
from faultset.baselines.methods.localization.correlation import correlate_with_alarm
from faultset.baselines.methods.localization.nezha import NezhaPatterns
from faultset.baselines.methods.rules.state_rules import KubernetesState
from faultset.baselines.registry import (
    NEZHA_SHOP,
    OPENSTACK,
    OWN_AND_PUBLISHED,
    OWN_CAMPAIGNS_ALL_APPS,
    RCAEVAL_CASE,
    localizer,
)
from faultset.datasets.format.labels import AlarmLocation
from faultset.datasets.views import EpisodeView, read_table

MIN_STRENGTH = 1.0
MIN_RATIO = 0.5
CALLER_SHARE = 0.1
"""Share of an explained symptom that still counts against the caller."""
CALLEE_SHARE = 0.25
"""Share of an explained symptom that counts against the callee."""
STATE_FACTOR = 4.0
"""Factor for the scores of object states."""
OBJECTS = "objects"
_G_PER_DECADE = 2 * float(np.log(10.0))


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Scores after called services have explained symptoms."""

    scores: Mapping[str, float]
    edges: Mapping[str, tuple[str, float]]
    """Caller -> (callee that explains its symptoms, strength that remains)."""


def explain(
    local: Mapping[str, float],
    symptoms: Mapping[str, float],
    calls: Iterable[tuple[str, str]],
    blind: Iterable[str] = (),
    *,
    front: str = "",
    unavailable: Collection[str] = (),
    min_strength: float = MIN_STRENGTH,
    min_ratio: float = MIN_RATIO,
) -> Explanation:
    """Discount the symptoms of services that call an anomalous service, and credit that service with a share of them.

    Parameters
    ----------
    local
        Service -> strength of evidence that no other service can explain.
    symptoms
        Service -> strength of symptoms that a called service may explain.
    calls
        (caller, callee) pairs.
    blind
        Services without telemetry. If several anomalous services with unexplained symptoms call such a service, it gets
        the smallest of their strengths.
    front
        Service that receives the load. If it has symptoms and calls an anomalous service, only services that it reaches
        through anomalous services keep their full symptoms.
    unavailable
        Services without serving pods, which may explain all evidence against their callers.

    Examples
    --------
    >>> explanation = explain({"db": 3.0}, {"front": 4.0, "cart": 5.0, "ads": 1.0}, [("front", "cart"), ("cart", "db")])
    >>> scores, edges = explanation.scores, explanation.edges
    >>> sorted(scores, key=scores.get, reverse=True), edges["front"][0]
    (['db', 'cart', 'ads', 'front'], 'cart')
    """
    names = sorted({*local, *symptoms})
    total = {name: local.get(name, 0.0) + symptoms.get(name, 0.0) for name in names}
    callees: dict[str, set[str]] = {}
    for caller, callee in calls:
        if caller != callee:
            callees.setdefault(caller, set()).add(callee)
    dependents = {name for name in names if not callees.get(name, set()).isdisjoint(unavailable)}
    local = {name: 0.0 if name in dependents else value for name, value in local.items()}
    symptoms = {name: total[name] if name in dependents else symptoms.get(name, 0.0) for name in names}
    reached = _find_reached_services(front, callees, {name for name, value in total.items() if value >= min_strength})
    if len(reached) > 1 and symptoms.get(front, 0.0) >= min_strength:
        symptoms = {name: value * (1.0 if name in reached else CALLER_SHARE) for name, value in symptoms.items()}
    edges: dict[str, tuple[str, float]] = {}
    scores = {name: local.get(name, 0.0) for name in names}
    for name in names:
        symptom = symptoms.get(name, 0.0)
        anomalous_callees = [
            c
            for c in callees.get(name, ())
            if c in unavailable or total.get(c, 0.0) >= max(min_strength, min_ratio * symptom)
        ]
        if not anomalous_callees or not symptom:
            scores[name] += symptom
            continue
        callee = max(sorted(anomalous_callees), key=lambda name: total[name])
        edges[name] = (callee, CALLER_SHARE * symptom)
        scores[name] += CALLER_SHARE * symptom
        scores[callee] = scores.get(callee, 0.0) + CALLEE_SHARE * min(symptom, total[callee])
    for name in blind:
        callers = [c for c, called in callees.items() if name in called and c not in edges]
        unexplained = [symptoms[c] for c in callers if symptoms.get(c, 0.0) >= min_strength]
        if len(unexplained) > 1:
            scores[name] = scores.get(name, 0.0) + min(unexplained)
    return Explanation(scores=scores, edges=edges)


def _find_reached_services(front: str, callees: Mapping[str, set[str]], anomalous: set[str]) -> set[str]:
    """Return the services that the front end reaches through anomalous services."""
    reached, open_ends = {front}, [front]
    while open_ends:
        new = {name for name in callees.get(open_ends.pop(), ()) if name in anomalous} - reached
        reached |= new
        open_ends += new
    return reached


@localizer(
    "combined-evidence",
    title="Combined evidence",
    paper="None; our own",
    kind="own",
    developed_on=(*OWN_AND_PUBLISHED, NEZHA_SHOP, RCAEVAL_CASE, OPENSTACK, OWN_CAMPAIGNS_ALL_APPS),
    tables=("metrics", "logs", "spans", "objects"),
    speed="fast",
    complexity="O(S·T + (N + L)·log(N + L) + E)",
)
class CombinedEvidence(TrainingFreeBaseline):
    """Rank services by summed evidence, except symptoms explained by the services they call.

    The strength of evidence is -log10 of the probability that it occurs by chance. Metrics are compared by blocks and
    Student's t; error lines, failed calls and missing lines by rates; requests by conditional patterns
    (`nezha-patterns`); objects by their state. Error lines, failed calls, and metrics such as latency and errors are
    symptoms. Without spans but with declared calls, correlations with the front end's latency and errors replace the
    symptoms in metrics (`ranked-correlation`).

    Parameters
    ----------
    min_strength
        Minimum strength of the evidence against a service that explains its callers' symptoms.
    min_ratio
        Minimum strength relative to the caller's symptoms.

    References
    ----------
    None; our own. Requests are compared as Nezha does (Yu et al., FSE 2023).
    """

    def __init__(self, *, min_strength: float = MIN_STRENGTH, min_ratio: float = MIN_RATIO) -> None:
        self.min_strength = min_strength
        self.min_ratio = min_ratio

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        calls = read_call_series(episode)
        graph = read_call_graph(episode, calls)
        candidates = set(episode.services)
        evidence = [item for item in self._collect_evidence(episode, alarm_ns, calls) if item.service in candidates]
        if not evidence:
            return Ranking.abstain()
        local, symptoms = (_sum_strength(evidence, local=is_local) for is_local in (True, False))
        blind = sorted(candidates - _list_observed_services(episode))
        front = episode.context.workload_entry
        unavailable = {
            item.service for item in evidence if item.subject == OBJECTS and item.strength >= self.min_strength
        }
        explanation = explain(
            local,
            symptoms,
            graph,
            blind,
            front=front,
            unavailable=unavailable,
            min_strength=self.min_strength,
            min_ratio=self.min_ratio,
        )
        return Ranking.of(explanation.scores, episode.services, _select_reasons(evidence, explanation))

    def locate_alarm(self, episode: EpisodeView) -> AlarmLocation:
        """Return the front end, whose clients notice a fault."""
        return AlarmLocation(service=episode.context.workload_entry)

    def _collect_evidence(self, episode: EpisodeView, alarm_ns: int, calls: CallSeries) -> list[ServiceEvidence]:
        rollouts = successful_rollouts(episode, alarm_ns)
        metrics = metric_evidence(episode, alarm_ns, rollouts)
        if not calls.services and episode.calls and episode.context.workload_entry:
            # Without spans, symptoms cannot be followed, so correlation with the metric of the alarm replaces them.
            metrics = [item for item in metrics if item.local]
            ranking = correlate_with_alarm(episode, alarm_ns, self.locate_alarm(episode))
            metrics += _convert_ranking(ranking, "correlation with the alarm", 1.0)
        evidence = [*metrics, *log_evidence(episode, alarm_ns)]
        evidence += _collect_failed_calls(episode, alarm_ns, calls)
        evidence += _collect_request_evidence(episode, alarm_ns, rollouts)
        return [*evidence, *_collect_object_evidence(episode, alarm_ns, rollouts)]


@localizer(
    "combined-evidence-at-alarm",
    title="Combined evidence, at the alarm",
    paper="None; our own",
    kind="own",
    developed_on=(*OWN_AND_PUBLISHED, NEZHA_SHOP, RCAEVAL_CASE, OPENSTACK, OWN_CAMPAIGNS_ALL_APPS),
    tables=("metrics", "logs", "spans", "objects"),
    needs=("alarm_location",),
    speed="fast",
    complexity="O(S·T + (N + L)·log(N + L) + E)",
)
class CombinedEvidenceAtAlarm(CombinedEvidence):
    """Rank services as `combined-evidence` does, but correlate with the metric of the alarm if it is known.

    References
    ----------
    None; our own.
    """

    def locate_alarm(self, episode: EpisodeView) -> AlarmLocation:
        """Return the service and metric of the alarm, or the front end."""
        return episode.alarm_location or super().locate_alarm(episode)


def _collect_request_evidence(episode: EpisodeView, alarm_ns: int, rollouts: Collection[str]) -> list[ServiceEvidence]:
    """Return evidence from patterns in requests, without metric evidence against services with a rollout."""
    ranking = NezhaPatterns().localize(episode, alarm_ns)
    metric_scores = {
        service: sum(
            item.score
            for item in ranking.evidence
            if item.service == service and (service, item.subject) in ranking.metrics
        )
        for service in rollouts
    }
    scores = {service: score - metric_scores.get(service, 0.0) for service, score in ranking.scores.items()}
    return _convert_ranking(replace(ranking, scores=scores), "requests", 1 / _G_PER_DECADE)


def _collect_object_evidence(
    episode: EpisodeView, alarm_ns: int, rollouts: Mapping[str, Rollout]
) -> list[ServiceEvidence]:
    """Return evidence from object states since the alarm, or since the end of a service's rollout."""
    evidence = _convert_ranking(KubernetesState().localize(episode, alarm_ns), OBJECTS, STATE_FACTOR)
    evidence = [item for item in evidence if item.service not in rollouts]
    for service, rollout in rollouts.items():
        # The method also uses earlier samples, so start late enough to exclude the rollout.
        start_ns = max(alarm_ns, rollout.end_ns + 2 * SAMPLING_NS)
        later = KubernetesState().localize(episode, start_ns) if start_ns < episode.window[1] else Ranking.abstain()
        evidence += [item for item in _convert_ranking(later, OBJECTS, STATE_FACTOR) if item.service == service]
    return evidence


def _convert_ranking(ranking: Ranking, subject: str, factor: float) -> list[ServiceEvidence]:
    """Convert the scores of a localizer to local evidence, which no other service can explain."""
    reasons = {item.service: f"{item.subject}: {item.detail}" for item in reversed(ranking.evidence)}
    return [
        ServiceEvidence(
            service=service, subject=subject, strength=factor * score, local=True, detail=reasons.get(service, "")
        )
        for service, score in ranking.scores.items()
    ]


def _collect_failed_calls(episode: EpisodeView, alarm_ns: int, calls: CallSeries) -> list[ServiceEvidence]:
    if not calls.services:
        return []
    ends_ns = calls.starts_ns + calls.step_ns
    end_ns = min(episode.reference[1], alarm_ns)
    healthy, recent = ends_ns <= end_ns, ends_ns > alarm_ns
    if not healthy.any() or not recent.any():
        return []
    healthy_errors, recent_errors = calls.errors[healthy].sum(axis=0), calls.errors[recent].sum(axis=0)
    strength = count_evidence(healthy_errors, recent_errors, float(healthy.sum()), float(recent.sum()))
    return [
        ServiceEvidence(
            service=calls.services[index],
            subject="calls to it",
            strength=float(strength[index]),
            local=False,
            detail=f"{healthy_errors[index]:.0f} failed in the reference, {recent_errors[index]:.0f} since the alarm",
        )
        for index in np.flatnonzero(strength > 0)
    ]


def _sum_strength(evidence: Sequence[ServiceEvidence], *, local: bool) -> dict[str, float]:
    """Return per service the summed strength of local evidence, or of symptoms."""
    scores: dict[str, float] = {}
    for item in evidence:
        if item.local == local:
            scores[item.service] = scores.get(item.service, 0.0) + item.strength
    return scores


def _list_observed_services(episode: EpisodeView) -> set[str]:
    """Return the services with metrics, log lines or spans."""
    services: set[str] = set()
    for table in ("metrics", "logs", "spans"):
        services.update(str(name) for name in read_table(episode, table, ("service",))["service"].unique().to_pylist())
    return services


def _select_reasons(evidence: Sequence[ServiceEvidence], explanation: Explanation) -> list[Evidence]:
    """Return the strongest evidence against the highest-ranked services, with the calls that explain it."""
    ordered = sorted(
        evidence, key=lambda item: (-explanation.scores.get(item.service, 0.0), item.service, -item.strength)
    )
    count: dict[str, int] = {}
    reasons = []
    for item in ordered:
        count[item.service] = count.get(item.service, 0) + 1
        if count[item.service] > 3 or item.strength < 0.5:
            continue
        edge = explanation.edges.get(item.service)
        suffix = "" if item.local or edge is None else f"; explained by its calls to {edge[0]}"
        reasons.append(
            Evidence(service=item.service, subject=item.subject, score=item.strength, detail=item.detail + suffix)
        )
    return reasons[:10]
