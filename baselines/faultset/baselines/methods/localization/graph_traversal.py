"""Localizers that follow anomalous services along the call graph: graph traversal, alarm descent and Microscope."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np
import numpy.typing as npt

from faultset.baselines.contract import Evidence, Ranking, TrainingFreeBaseline, largest_first
from faultset.baselines.features.calls import (
    FROM_SPANS,
    correlate_with_front,
    correlations,
    find_anomalous_services,
    measure_latency,
    read_call_graph,
    read_call_series,
)
from faultset.baselines.features.windows import Windows, windows_since_reference
from faultset.baselines.registry import localizer
from faultset.baselines.stats.scaling import Matrix, deviations, median_and_mad
from faultset.datasets.format.labels import AlarmLocation
from faultset.datasets.views import EpisodeView

SYMPTOMS = ("latency", "errors")
MIN_Z = 3.0
MAX_Z = 100.0
SUSTAINED_STEPS = 2
UNLIKELY = 0.1


def measure_deviations(
    windows: Windows, columns: Sequence[int], front: str, alarm_ns: int, *, upwards: bool
) -> dict[str, float]:
    """Return each service's largest deviation in robust sigmas, weighted by its correlation with the front end.

    Deviations are averaged over two consecutive samples. They are measured from the reference's median and from the
    level between the reference and the alarm. The smaller one counts, because the reference may be from a different
    day. The weight is the correlation with the front end's series of the same name, which is low for random deviations
    of rarely called services. A series that stopped has the largest possible deviation.

    Parameters
    ----------
    windows
        Windows whose values begin at the end of the reference.
    columns
        Columns of the series.
    front
        The weights are correlations with the series of this service; without such series, all weights are 1.
    upwards
        Whether only increases count.
    """
    if not columns or windows.empty:
        return {}
    series = [windows.series[column] for column in columns]
    center, spread = median_and_mad(windows.reference[:, columns])
    values = windows.values[:, columns]
    is_before_alarm = _select_before_alarm(windows, alarm_ns)
    level = median_and_mad(values[is_before_alarm])[0] if is_before_alarm.any() else center
    recent = values[windows.times_ns > alarm_ns - windows.step_ns]
    if not len(recent):
        return {}
    signed = [deviations(recent, reference, spread) for reference in (center, level)]
    z = np.minimum(*(signed if upwards else np.abs(signed)))
    filled = np.where(np.isfinite(values), values, level)
    front_columns = {name: i for i, (owner, name) in enumerate(series) if owner == front}
    weight = np.ones(len(columns))
    for name, index in front_columns.items():
        columns_with_name = [i for i, (_, other) in enumerate(series) if other == name]
        weight[columns_with_name] = np.maximum(correlations(filled[:, columns_with_name], filled[:, index]), 0.0)
    weighted = np.minimum(_average_pairs(z), MAX_Z) * weight
    # A silent service reports neither latency nor errors.
    silent = windows.absent[:, columns][windows.times_ns > alarm_ns - windows.step_ns]
    weighted[silent.sum(axis=0) >= SUSTAINED_STEPS] = MAX_Z
    largest: dict[str, float] = {}
    for (owner, _), deviation in zip(series, weighted.tolist(), strict=True):
        largest[owner] = max(largest.get(owner, 0.0), deviation)
    return largest


def count_explained(calls: Sequence[tuple[str, str]], anomalous: Mapping[str, float], front: str) -> dict[str, float]:
    """Return, for each anomalous service, the sum of log(1 + deviation) over itself and its anomalous callers.

    Indirect callers count too. If the front end is anomalous, services that do not explain it are left out. The
    logarithm keeps a single large deviation from outweighing many.

    >>> calls = [("front", "cart"), ("cart", "db"), ("front", "ads")]
    >>> scores = count_explained(calls, {"front": 9.0, "cart": 5.0, "ads": 9.0, "mail": 99.0}, "front")
    >>> sorted(scores, key=scores.get, reverse=True)
    ['ads', 'cart', 'front']
    """
    callers: dict[str, set[str]] = {name: set() for name in anomalous}
    for caller, callee in calls:
        if caller in anomalous and callee in anomalous and caller != callee:
            callers[callee].add(caller)
    scores = {}
    for name in anomalous:
        reached, open_ends = {name}, [name]
        while open_ends:
            new = callers[open_ends.pop()] - reached
            reached |= new
            open_ends += new
        if front in reached or front not in anomalous:
            scores[name] = sum(float(np.log1p(anomalous[other])) for other in sorted(reached))
    return scores


@localizer(
    "graph-traversal",
    title="Traversal of the call graph",
    paper="Variant of the traversal in Hardt et al., PetShop, CLeaR 2024",
    kind="own",
    tables=("metrics", "spans"),
    complexity="O(S·T + services·calls)",
    departures=(
        "The published method gets the anomalous metric of the front end; ours uses the role, latency or errors, in "
        "which the front end deviates more.",
        "A deviation lasts for two samples, is measured from the reference and from shortly before the alarm (the "
        "smaller one counts), and is weighted by its correlation with the front end.",
        "A service whose metrics stopped is anomalous; the published method ignores it.",
        "The score counts all anomalous callers, not only the callers on one path; services with an anomalous callee "
        "rank lower.",
    ),
)
class GraphTraversal(TrainingFreeBaseline):
    """Rank anomalous services by the anomalies that they explain; services with an anomalous callee rank lower.

    Parameters
    ----------
    min_z
        Robust sigmas from the reference's median beyond which a service is anomalous.

    References
    ----------
    Hardt et al., The PetShop dataset: finding causes of performance issues across microservices, CLeaR 2024, for the
    traversal; the definitions of anomaly, symptom and score are our own.
    """

    def __init__(self, *, min_z: float = MIN_Z) -> None:
        self.min_z = min_z

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        windows = windows_since_reference(episode, alarm_ns)
        role = episode.catalogue.role_of
        front = episode.context.workload_entry
        deviations_by_symptom = {
            symptom: measure_deviations(
                windows,
                [i for i, (_, name) in enumerate(windows.series) if role(name) == symptom],
                front,
                alarm_ns,
                upwards=symptom == "latency",
            )
            for symptom in SYMPTOMS
        }
        symptom = max(SYMPTOMS, key=lambda name: _measure_symptom(deviations_by_symptom[name], front))
        anomalous = {
            name: z
            for name, z in deviations_by_symptom[symptom].items()
            if z >= self.min_z and name in episode.services
        }
        if not anomalous:
            return Ranking.abstain()
        calls = read_call_graph(episode)
        scores = count_explained(calls, anomalous, front)
        explained = {
            caller for caller, callee in calls if caller in anomalous and callee in anomalous and caller != callee
        }
        ranked = {name: score * (UNLIKELY if name in explained else 1.0) for name, score in scores.items()}
        evidence = [
            Evidence(
                service=name, subject=symptom, score=anomalous[name], detail="robust sigmas from the healthy median"
            )
            for name in largest_first(ranked)[:10]
        ]
        return Ranking.of(ranked, episode.services, evidence)


def _measure_symptom(by_service: Mapping[str, float], front: str) -> float:
    """Return the deviation of the front end, or the largest one if the front end has no series."""
    return by_service.get(front, max(by_service.values(), default=0.0))


def _select_before_alarm(windows: Windows, alarm_ns: int) -> npt.NDArray[np.bool_]:
    """Return which samples are between the reference and the alarm, without the last two steps if others remain."""
    chosen = windows.times_ns <= alarm_ns
    for steps in (1, 2):
        earlier = windows.times_ns <= alarm_ns - steps * windows.step_ns
        chosen = earlier if earlier.any() else chosen
    return chosen


def _average_pairs(z: Matrix) -> Matrix:
    """Return the largest mean of two consecutive rows of each column."""
    if len(z) < SUSTAINED_STEPS:
        return z.max(axis=0, initial=0.0)
    return np.asarray((z[:-1] + z[1:]).max(axis=0) / SUSTAINED_STEPS)


UNREACHED_WEIGHT = 0.001
"""Weight of services that have the symptom but that no calls reach from the alarm; they rank last."""


def divide_blame(
    calls: Iterable[tuple[str, str]], symptoms: Mapping[str, float], alarm_service: str
) -> dict[str, float]:
    """Divide one unit of blame among the services that calls reach from the service of the alarm.

    A service keeps a share in proportion to the excess of its symptom over the strongest symptom of its callees. Each
    callee gets a share in proportion to its symptom times the number of its callers with the symptom. Blame only moves
    to services farther from the alarm, so the division ends.

    Parameters
    ----------
    calls
        (caller, callee) pairs.
    symptoms
        Service -> strength of its symptom.
    alarm_service
        Service of the alarm, which must be in `symptoms`.

    Examples
    --------
    >>> calls = [("front", "cart"), ("front", "ads"), ("cart", "db")]
    >>> divide_blame(calls, {"front": 4.0, "cart": 3.0, "db": 3.0}, "front")
    {'front': 0.25, 'cart': 0.0, 'db': 0.75}
    """
    pairs = {pair for pair in calls if pair[0] != pair[1] and symptoms.keys() >= {*pair}}
    callers = Counter(callee for _, callee in pairs)
    blame_of: dict[str, float] = {}
    current = {alarm_service: 1.0}
    while current:
        next_services: dict[str, float] = {}
        for name, blame in current.items():
            callees = sorted(b for a, b in pairs if a == name and b not in blame_of and b not in current)
            excess = max(0.0, symptoms[name] - max((symptoms[callee] for callee in callees), default=0.0))
            shares = {callee: symptoms[callee] * callers[callee] for callee in callees}
            total = excess + sum(shares.values())
            blame_of[name] = blame * excess / total if total else blame
            for callee, share in shares.items():
                next_services[callee] = next_services.get(callee, 0.0) + blame * share / total
        current = next_services
    return blame_of


@localizer(
    "alarm-descent",
    title="Descent from the alarm",
    paper="None; our own",
    kind="own",
    tables=("metrics", "spans"),
    needs=("alarm_location",),
    complexity="O(S·T + services·calls)",
)
class AlarmDescent(TrainingFreeBaseline):
    """Follow the alarm's symptom along calls, and rank services by what their callees do not explain.

    The symptom is latency or errors, depending on the metric of the alarm. If the metric is unknown, the symptom is the
    one in which the alarm's service deviates more. If the service is unknown, the front end is used. The strength of a
    symptom is the logarithm of the deviation in `graph-traversal`.

    Parameters
    ----------
    min_z
        Robust sigmas from the reference's median beyond which a service has the symptom.

    References
    ----------
    None; our own.
    """

    def __init__(self, *, min_z: float = MIN_Z) -> None:
        self.min_z = min_z

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank services by blame; services that no calls reach from the alarm come last."""
        alarm_location = episode.alarm_location or AlarmLocation(service=episode.context.workload_entry)
        if alarm_location.service not in episode.services:
            return Ranking.abstain()
        windows = windows_since_reference(episode, alarm_ns)
        by_service: dict[str, float] = {}
        symptom = ""
        for role in _choose_symptoms(episode, alarm_location, windows):
            columns = [i for i, (_, name) in enumerate(windows.series) if episode.catalogue.role_of(name) == role]
            candidates = measure_deviations(
                windows, columns, alarm_location.service, alarm_ns, upwards=role == "latency"
            )
            if not symptom or candidates.get(alarm_location.service, 0.0) > by_service.get(alarm_location.service, 0.0):
                by_service, symptom = candidates, role
        anomalous = {name: z for name, z in by_service.items() if z >= self.min_z and name in episode.services}
        if not anomalous:
            return Ranking.abstain()
        # The alarm's service has the symptom by definition.
        strength = {name: math.log1p(z) for name, z in {alarm_location.service: self.min_z, **anomalous}.items()}
        scores = {name: UNREACHED_WEIGHT * value for name, value in strength.items()}
        scores |= {
            name: blame + scores[name]
            for name, blame in divide_blame(read_call_graph(episode), strength, alarm_location.service).items()
        }
        evidence = [
            Evidence(
                service=name,
                subject=symptom,
                score=by_service.get(name, 0.0),
                detail="robust sigmas from the healthy median",
            )
            for name in largest_first(scores)[:10]
        ]
        return Ranking.of(scores, episode.services, evidence)


def _choose_symptoms(episode: EpisodeView, location: AlarmLocation, windows: Windows) -> list[str]:
    """Return the role of the alarm's metric, or both roles if the metric is unknown."""
    if location.metric is None:
        return list(SYMPTOMS)
    roles = {
        episode.catalogue.role_of(metric)
        for service, metric in windows.series
        if service == location.service and fnmatchcase(metric, location.metric)
    }
    return [role for role in SYMPTOMS if role in roles] or list(SYMPTOMS)


@localizer(
    "microscope",
    title="Microscope",
    paper="Lin, Chen, Zheng, Microscope, ICSOC 2018",
    tables=("spans", "metrics"),
    complexity="O(N + S·T + E)",
    departures=(
        *FROM_SPANS,
        "The graph is the call graph; the paper learns it from network connections and a parallel PC algorithm.",
        "Candidates are compared with the front end, not with the last visited node as in a public port.",
        "A service is anomalous if its latency exceeds 3 sigma for three steps.",
    ),
)
class Microscope(TrainingFreeBaseline):
    """Follow anomalous services from the front end, and rank the last services by correlation with the front end.

    References
    ----------
    Lin, Chen, Zheng, Microscope: pinpoint performance issues with causal graphs in micro-service environments,
    ICSOC 2018.
    """

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        front = episode.context.workload_entry
        calls = read_call_series(episode)
        latency = measure_latency(episode, alarm_ns, calls)
        anomalous = find_anomalous_services(latency)
        similarity = correlate_with_front(latency, front)
        ends = find_path_ends(read_call_graph(episode, calls), front, anomalous)
        scores = {name: similarity.get(name, 0.0) for name in ends}
        evidence = [
            Evidence(service=name, subject="latency", score=anomalous[name], detail="sigmas for three steps")
            for name in largest_first(scores)
        ]
        return Ranking.of(scores, episode.services, evidence)


def find_path_ends(calls: tuple[tuple[str, str], ...], front: str, anomalous: Mapping[str, float]) -> tuple[str, ...]:
    """Return anomalous services without anomalous callees that the front end reaches through anomalous services.

    >>> find_path_ends((("f", "a"), ("a", "b"), ("f", "c"), ("c", "d")), "f", {"f": 4, "a": 5, "b": 6, "d": 9})
    ('b',)
    """
    visited: set[str] = set()
    ends: set[str] = set()
    stack = [front] if front in anomalous else []
    while stack:
        name = stack.pop()
        if name in visited:
            continue
        visited.add(name)
        callees = [callee for caller, callee in calls if caller == name and callee in anomalous]
        stack += callees
        if not callees:
            ends.add(name)
    return tuple(sorted(ends))
