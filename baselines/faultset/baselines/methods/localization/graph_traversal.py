"""From the front end along the call graph through anomalous services, to those that call no anomalous service.

The traversal of PetShop's authors is the model. Theirs looks at one named metric in one row; ours finds out for
itself whether latency or errors moved, and ranks by how much of what moved a service explains.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from faultset.baselines.api.contract import Evidence, Ranking, Untrained
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN_AND_PUBLISHED
from faultset.baselines.features.service_latency import (
    FROM_SPANS,
    anomalous_services,
    call_graph,
    call_series,
    correlations,
    service_latency,
    similarity_to_front,
)
from faultset.baselines.features.windows import Windows, localization_windows
from faultset.baselines.stats.scaling import Matrix, deviations, median_and_mad
from faultset.core.times import SECOND_NS
from faultset.datasets.format.labels import AlarmPlace

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

SYMPTOMS = ("latency", "errors")
LEAST_Z = 3.0
MOST_Z = 100.0
SUSTAINED = 2
UNLIKELY = 0.1


def suffering(
    windows: Windows, columns: Sequence[int], front: str, alarm_ns: int, *, upwards: bool
) -> dict[str, float]:
    """Return how far each service's series have moved along with the front end's, in spreads; its furthest series.

    What counts is the smaller of two moves of two samples on end: from the reference's median, and from the level
    shortly before the alarm. Another day than the reference's has other levels, and they are no sign of a fault.
    Each move is weighted with the correlation to the front end's series of the same name since the reference,
    which chance deviations of a service that is seldom called do not have. Spreads are median absolute deviations of
    the reference. A series that has stopped since the alarm has moved as far as any can.

    Parameters
    ----------
    windows
        Its values begin with the end of the reference.
    columns
        Series to look at.
    front
        Service that the load talks to; where it has no such series there are no weights.
    upwards
        Whether only growth counts.
    """
    if not columns or windows.empty:
        return {}
    series = [windows.series[column] for column in columns]
    center, spread = median_and_mad(windows.reference[:, columns])
    values = windows.values[:, columns]
    before = _before(windows, alarm_ns)
    level = median_and_mad(values[before])[0] if before.any() else center
    since = values[windows.times_ns > alarm_ns - windows.step_ns]
    if not len(since):
        return {}
    nothing = np.zeros(since.shape, dtype=bool)
    moves = [deviations(since, reference, spread, nothing) for reference in (center, level)]
    z = np.minimum(*(moves if upwards else np.abs(moves)))
    filled = np.where(np.isfinite(values), values, level)
    fronts = {name: i for i, (owner, name) in enumerate(series) if owner == front}
    weight = np.ones(len(columns))
    for name, place in fronts.items():
        same = [i for i, (_, other) in enumerate(series) if other == name]
        weight[same] = np.maximum(correlations(filled[:, same], filled[:, place]), 0.0)
    moved = np.minimum(_sustained(z), MOST_Z) * weight
    # who has fallen silent cannot tell of slowness or errors
    silent = windows.absent[:, columns][windows.times_ns > alarm_ns - windows.step_ns]
    moved[silent.sum(axis=0) >= SUSTAINED] = MOST_Z
    furthest: dict[str, float] = {}
    for (owner, _), far in zip(series, moved.tolist(), strict=True):
        furthest[owner] = max(furthest.get(owner, 0.0), far)
    return furthest


def explained(calls: Sequence[tuple[str, str]], ill: Mapping[str, float], front: str) -> dict[str, float]:
    """Return for each ill service how much of all illness it explains: its own and that of ill services calling it.

    Illness spreads from callees to callers, over ill services only. When the front end is ill, a service that does
    not explain it is left out. The logarithm keeps one huge deviation from outweighing many.

    >>> calls = [("front", "cart"), ("cart", "db"), ("front", "ads")]
    >>> found = explained(calls, {"front": 9.0, "cart": 5.0, "ads": 9.0, "mail": 99.0}, "front")
    >>> sorted(found, key=found.get, reverse=True)
    ['ads', 'cart', 'front']
    """
    callers: dict[str, set[str]] = {name: set() for name in ill}
    for caller, callee in calls:
        if caller in ill and callee in ill and caller != callee:
            callers[callee].add(caller)
    scores = {}
    for name in ill:
        reached, open_ends = {name}, [name]
        while open_ends:
            new = callers[open_ends.pop()] - reached
            reached |= new
            open_ends += new
        if front in reached or front not in ill:
            scores[name] = sum(float(np.log1p(ill[other])) for other in sorted(reached))
    return scores


@baseline(
    "graph-traversal",
    title="Traversal of the call graph",
    task="localization",
    paper="Own variant of the traversal in Hardt et al., PetShop, CLeaR 2024",
    kind="own",
    developed_on=OWN_AND_PUBLISHED,
    tables=("metrics", "spans"),
    speed="instant",
    complexity="O(S·T + services·calls)",
    departures=(
        "The published method is given which metric of the front end is ill; ours takes the role, latency or errors, "
        "in which the front end has moved further.",
        "A service is judged by two samples on end, not by one row, by the smaller of its moves from the reference and "
        "from shortly before the alarm, and only as far as it moves along with the front end.",
        "A service whose metrics have stopped is ill; the published one has no deviation there and passes it by.",
        "The score counts all ill callers and not only those on one path; services with an ill callee come after.",
    ),
)
class GraphTraversal(Untrained):
    """Rank services that suffer while nobody they call does, by how much suffering they explain.

    Parameters
    ----------
    least_z
        Spreads from the reference's median that make a service ill.

    References
    ----------
    Hardt et al., The PetShop dataset: finding causes of performance issues across microservices, CLeaR 2024, for the
    traversal; illness, symptom and score are our own.
    """

    def __init__(self, *, least_z: float = LEAST_Z) -> None:
        self.least_z = least_z

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank the ill services."""
        step_ns = episode.context.resolution_s * SECOND_NS
        since_reference = max(1, math.ceil((alarm_ns - episode.reference[1]) / step_ns))
        windows = localization_windows(episode, alarm_ns, before=since_reference)
        role = episode.catalogue.role_of
        front = episode.context.workload_entry
        moved = {
            symptom: suffering(
                windows,
                [i for i, (_, name) in enumerate(windows.series) if role(name) == symptom],
                front,
                alarm_ns,
                upwards=symptom == "latency",
            )
            for symptom in SYMPTOMS
        }
        symptom = max(SYMPTOMS, key=lambda name: _furthest(moved[name], front))
        ill = {name: z for name, z in moved[symptom].items() if z >= self.least_z and name in episode.services}
        if not ill:
            return Ranking.abstain()
        calls = call_graph(episode)
        scores = explained(calls, ill, front)
        helped = {caller for caller, callee in calls if caller in ill and callee in ill and caller != callee}
        ranked = {name: score * (UNLIKELY if name in helped else 1.0) for name, score in scores.items()}
        evidence = [
            Evidence(service=name, subject=symptom, score=ill[name], detail="spreads from the healthy median")
            for name in sorted(ranked, key=lambda name: (-ranked[name], name))[:10]
        ]
        return Ranking.of(ranked, episode.services, evidence)


def _furthest(moved: Mapping[str, float], front: str) -> float:
    """Return how far the front end has moved; where it has no series, whoever moved furthest."""
    return moved.get(front, max(moved.values(), default=0.0))


def _before(windows: Windows, alarm_ns: int) -> npt.NDArray[np.bool_]:
    """Choose samples between reference and alarm, away from the alarm where there are enough."""
    chosen = windows.times_ns <= alarm_ns
    for steps in (1, 2):
        earlier = windows.times_ns <= alarm_ns - steps * windows.step_ns
        chosen = earlier if earlier.any() else chosen
    return chosen


def _sustained(z: Matrix) -> Matrix:
    """Return the largest mean of neighbouring rows of each column."""
    if len(z) < SUSTAINED:
        return z.max(axis=0, initial=0.0)
    return np.asarray((z[:-1] + z[1:]).max(axis=0) / SUSTAINED)


UNREACHED = 0.001
"""Weight of services that show the symptom and that no calls lead to: they come after all others."""


def divided_blame(calls: Iterable[tuple[str, str]], symptoms: Mapping[str, float], place: str) -> dict[str, float]:
    """Divide one unit of blame among the services that calls lead to from where the alarm was seen.

    A service keeps a share for the part of its symptom by which it exceeds the strongest of the services that it calls,
    and passes on to each of those a share for its symptom, times how many services with the symptom call it. Blame goes
    from each distance to the next, so that it ends, and what lies further away is given less.

    Parameters
    ----------
    calls
        (caller, callee).
    symptoms
        Service -> strength of the symptom, of those that show it.
    place
        Service where the alarm was seen; it is among `symptoms`.

    Examples
    --------
    >>> calls = [("front", "cart"), ("front", "ads"), ("cart", "db")]
    >>> divided_blame(calls, {"front": 4.0, "cart": 3.0, "db": 3.0}, "front")
    {'front': 0.25, 'cart': 0.0, 'db': 0.75}
    """
    pairs = {pair for pair in calls if pair[0] != pair[1] and symptoms.keys() >= {*pair}}
    callers = Counter(callee for _, callee in pairs)
    blame_of: dict[str, float] = {}
    level = {place: 1.0}
    while level:
        following: dict[str, float] = {}
        for name, blame in level.items():
            below = sorted(b for a, b in pairs if a == name and b not in blame_of and b not in level)
            excess = max(0.0, symptoms[name] - max((symptoms[callee] for callee in below), default=0.0))
            shares = {callee: symptoms[callee] * callers[callee] for callee in below}
            parts = excess + sum(shares.values())
            blame_of[name] = blame * excess / parts if parts else blame
            for callee, share in shares.items():
                following[callee] = following.get(callee, 0.0) + blame * share / parts
        level = following
    return blame_of


@baseline(
    "alarm-descent",
    title="Descent from the alarm",
    task="localization",
    paper="None; our own",
    kind="own",
    developed_on=OWN_AND_PUBLISHED,
    tables=("metrics", "spans"),
    needs=("alarm_place",),
    speed="instant",
    complexity="O(S·T + services·calls)",
)
class AlarmDescent(Untrained):
    """Follow the symptom of the alarm along calls, and blame services for what those that they call do not explain.

    The symptom is that of the metric on which the alarm was seen, latency or errors; where the metric is not told, the
    one in which the service of the alarm has moved further. Where no place is told, it is the front end. How far the
    series of a service have moved along with those of the alarm's service is measured as by `graph-traversal`, and
    counts by its logarithm.

    Parameters
    ----------
    least_z
        Spreads from the reference's median from which on a service shows the symptom.

    References
    ----------
    None; our own. The measure of the symptom is that of `graph-traversal`.
    """

    def __init__(self, *, least_z: float = LEAST_Z) -> None:
        self.least_z = least_z

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank by blame; services that no calls lead to from the alarm come last."""
        alarm_place = episode.alarm_place or AlarmPlace(service=episode.context.workload_entry)
        if alarm_place.service not in episode.services:
            return Ranking.abstain()
        since_reference = max(
            1, math.ceil((alarm_ns - episode.reference[1]) / (episode.context.resolution_s * SECOND_NS))
        )
        windows = localization_windows(episode, alarm_ns, before=since_reference)
        moved: dict[str, float] = {}
        symptom = ""
        for role in _symptoms(episode, alarm_place, windows):
            columns = [i for i, (_, name) in enumerate(windows.series) if episode.catalogue.role_of(name) == role]
            moves = suffering(windows, columns, alarm_place.service, alarm_ns, upwards=role == "latency")
            if not symptom or moves.get(alarm_place.service, 0.0) > moved.get(alarm_place.service, 0.0):
                moved, symptom = moves, role
        ill = {name: z for name, z in moved.items() if z >= self.least_z and name in episode.services}
        if not ill:
            return Ranking.abstain()
        # the alarm says that its service is ill, whatever its series say
        strength = {name: math.log1p(z) for name, z in {alarm_place.service: self.least_z, **ill}.items()}
        scores = {name: UNREACHED * value for name, value in strength.items()}
        scores |= {
            name: blame + scores[name]
            for name, blame in divided_blame(call_graph(episode), strength, alarm_place.service).items()
        }
        evidence = [
            Evidence(
                service=name, subject=symptom, score=moved.get(name, 0.0), detail="spreads from the healthy median"
            )
            for name in sorted(scores, key=lambda name: (-scores[name], name))[:10]
        ]
        return Ranking.of(scores, episode.services, evidence)


def _symptoms(episode: EpisodeView, place: AlarmPlace, windows: Windows) -> list[str]:
    """Return the roles in which the alarm can show: that of its metric, or both where it is not told or not known."""
    if place.metric is None:
        return list(SYMPTOMS)
    roles = {
        episode.catalogue.role_of(metric)
        for service, metric in windows.series
        if service == place.service and fnmatchcase(metric, place.metric)
    }
    return [role for role in SYMPTOMS if role in roles] or list(SYMPTOMS)


@baseline(
    "microscope",
    title="Microscope",
    task="localization",
    paper="Lin, Chen, Zheng, Microscope, ICSOC 2018",
    kind="method",
    developed_on=OWN_AND_PUBLISHED,
    tables=("spans", "metrics"),
    speed="instant",
    complexity="O(N + S·T + E)",
    departures=(
        *FROM_SPANS,
        "The graph is the call graph; the paper learns one from network connections and a parallel PC algorithm.",
        "Candidates are compared with the front end, and not with the node visited last, as one public port does.",
        "A service is anomalous when its latency stays beyond three sigma for three steps.",
    ),
)
class Microscope(Untrained):
    """Descend from the front end through anomalous services to those that call none; rank by correlation.

    References
    ----------
    Lin, Chen, Zheng, Microscope: pinpoint performance issues with causal graphs in micro-service environments,
    ICSOC 2018.
    """

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        """Rank the anomalous services at which the descent ends."""
        front = episode.context.workload_entry
        calls = call_series(episode)
        latency = service_latency(episode, alarm_ns, calls)
        anomalous = anomalous_services(latency)
        similarity = similarity_to_front(latency, front)
        ends = descent_ends(call_graph(episode, calls), front, anomalous)
        scores = {name: similarity.get(name, 0.0) for name in ends}
        evidence = [
            Evidence(service=name, subject="latency", score=anomalous[name], detail="sigmas for three steps")
            for name in sorted(ends, key=lambda name: (-scores[name], name))
        ]
        return Ranking.of(scores, episode.services, evidence)


def descent_ends(calls: tuple[tuple[str, str], ...], front: str, anomalous: Mapping[str, float]) -> tuple[str, ...]:
    """Anomalous services without anomalous callees that are reached from the front end through anomalous ones.

    >>> descent_ends((("f", "a"), ("a", "b"), ("f", "c"), ("c", "d")), "f", {"f": 4, "a": 5, "b": 6, "d": 9})
    ('b',)
    """
    seen: set[str] = set()
    ends: set[str] = set()
    waiting = [front] if front in anomalous else []
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        below = [callee for caller, callee in calls if caller == name and callee in anomalous]
        waiting += below
        if not below:
            ends.add(name)
    return tuple(sorted(ends))
