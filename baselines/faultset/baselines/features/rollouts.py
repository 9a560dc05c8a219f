"""Rollouts that go as planned: new pods become ready while the old ones still are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from faultset.baselines.api.tables import parse_state
from faultset.baselines.features.object_histories import (
    SAMPLING_NS,
    ObjectHistory,
    object_histories,
    read_object_states,
)
from faultset.baselines.features.object_states import restarts, signs
from faultset.core.times import SECOND_NS

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

_UNSEEN_NS = 2.5 * SAMPLING_NS
"""From when on a pod that is seen no more is gone."""
_STARTING_NS = 30 * SECOND_NS
"""How long new pods may take to become ready."""
_STARTING_SIGNS = frozenset({"pod Pending", "pod not ready"})


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """From the first sight of the first new pod to the last one of the last old pod, or the end of the view."""

    begin_ns: int
    end_ns: int


@dataclass(frozen=True, kw_only=True)
class _Pod:
    times_ns: Sequence[int]
    states: Sequence[dict[str, Any]]

    @classmethod
    def of(cls, seen: ObjectHistory) -> _Pod:
        return cls(times_ns=seen.times_ns, states=[parse_state(text) for text in seen.texts])

    def has_ended_by(self, end_ns: int) -> bool:
        return self.states[-1].get("reason") == "Terminating" or end_ns - self.times_ns[-1] > _UNSEEN_NS

    def is_ready_at(self, end_ns: int) -> bool:
        """Whether it is ready at the end."""
        return not self.has_ended_by(end_ns) and _is_ready(self.states[-1])

    def starts_without_failure(self, end_ns: int) -> bool:
        """Whether it is ready at the end or will soon be, and nothing of it has failed."""
        found = frozenset[str]().union(*(signs("Pod", state) for state in self.states))
        soon = self.is_ready_at(end_ns) or end_ns - self.times_ns[0] <= _STARTING_NS
        return soon and not self.has_ended_by(end_ns) and found <= _STARTING_SIGNS and not restarts(self.states[-1])

    @property
    def ready_times_ns(self) -> list[int]:
        """When it was seen to be ready."""
        return [time for time, state in zip(self.times_ns, self.states, strict=True) if _is_ready(state)]


def planned_rollouts(episode: EpisodeView, alarm_ns: int) -> dict[str, Rollout]:
    """Return the services whose pods were replaced as planned, and when; only what was not over in the healthy time.

    That old pods served until new ones were ready tells it from the replacement of pods that failed.
    """
    frame = read_object_states(episode)
    (start_ns, end_ns), healthy_end_ns = episode.window, min(episode.reference[1], alarm_ns)
    old: dict[str, list[_Pod]] = defaultdict(list)
    new: dict[str, list[_Pod]] = defaultdict(list)
    for seen in object_histories(frame[frame["kind"] == "Pod"]):
        (old if seen.times_ns[0] <= start_ns + SAMPLING_NS else new)[seen.service].append(_Pod.of(seen))
    found = {}
    for service, made in new.items():
        if not old[service] or not all(pod.starts_without_failure(end_ns) for pod in made):
            continue
        replaced = [pod for pod in old[service] if pod.has_ended_by(end_ns)]
        ready_ns = min((time for pod in made for time in pod.ready_times_ns), default=end_ns)
        if all(
            pod.is_ready_at(end_ns) or max(pod.ready_times_ns, default=0) + SAMPLING_NS > ready_ns
            for pod in old[service]
        ):
            under_way = not all(pod.is_ready_at(end_ns) for pod in made)
            if not replaced and not under_way:
                continue  # there are more pods than before
            last_ns = end_ns if under_way else max(pod.times_ns[-1] for pod in replaced)
            if last_ns > healthy_end_ns:
                found[service] = Rollout(begin_ns=min(pod.times_ns[0] for pod in made), end_ns=last_ns)
    return found


def _is_ready(state: dict[str, Any]) -> bool:
    return state.get("ready") in (True, "True")
