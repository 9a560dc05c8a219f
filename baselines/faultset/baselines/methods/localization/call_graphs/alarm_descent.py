"""From where the alarm was seen down the call graph: blame is divided between a service and those that it calls."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from faultset.baselines.api.contract import Evidence, Ranking, Untrained
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN_AND_PUBLISHED
from faultset.baselines.features.service_latency import call_graph
from faultset.baselines.features.windows import Windows, localization_windows
from faultset.baselines.methods.localization.call_graphs.graph_traversal import LEAST_Z, SYMPTOMS, suffering
from faultset.core.times import SECOND_NS
from faultset.datasets.format.labels import AlarmPlace

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

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
    found: dict[str, float] = {}
    level = {place: 1.0}
    while level:
        following: dict[str, float] = {}
        for name, blame in level.items():
            below = sorted(b for a, b in pairs if a == name and b not in found and b not in level)
            own = max(0.0, symptoms[name] - max((symptoms[callee] for callee in below), default=0.0))
            shares = {callee: symptoms[callee] * callers[callee] for callee in below}
            parts = own + sum(shares.values())
            found[name] = blame * own / parts if parts else blame
            for callee, share in shares.items():
                following[callee] = following.get(callee, 0.0) + blame * share / parts
        level = following
    return found


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
        place = episode.alarm_place or AlarmPlace(service=episode.context.workload_entry)
        if place.service not in episode.services:
            return Ranking.abstain()
        since_reference = max(
            1, math.ceil((alarm_ns - episode.reference[1]) / (episode.context.resolution_s * SECOND_NS))
        )
        windows = localization_windows(episode, alarm_ns, before=since_reference)
        moved: dict[str, float] = {}
        symptom = ""
        for role in _symptoms(episode, place, windows):
            columns = [i for i, (_, name) in enumerate(windows.series) if episode.catalogue.role_of(name) == role]
            found = suffering(windows, columns, place.service, alarm_ns, upwards=role == "latency")
            if not symptom or found.get(place.service, 0.0) > moved.get(place.service, 0.0):
                moved, symptom = found, role
        ill = {name: z for name, z in moved.items() if z >= self.least_z and name in episode.services}
        if not ill:
            return Ranking.abstain()
        # the alarm says that its service is ill, whatever its series say
        strength = {name: math.log1p(z) for name, z in {place.service: self.least_z, **ill}.items()}
        scores = {name: UNREACHED * value for name, value in strength.items()}
        scores |= {
            name: blame + scores[name]
            for name, blame in divided_blame(call_graph(episode), strength, place.service).items()
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
    told = {
        episode.catalogue.role_of(metric)
        for service, metric in windows.series
        if service == place.service and fnmatchcase(metric, place.metric)
    }
    return [role for role in SYMPTOMS if role in told] or list(SYMPTOMS)
