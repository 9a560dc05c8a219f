"""Describe which Kubernetes objects of a service changed, and which events warned about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from faultset.baselines.api.tables import parse_state, read_frame
from faultset.baselines.features.object_states import (
    SAMPLING_NS,
    ObjectHistory,
    find_signs,
    object_histories,
    read_object_states,
    read_specification,
)
from faultset.core.printable import brief, printable
from faultset.datasets.explorer.records import flat_fields
from faultset.evaluators.diagnosis.records import Observation
from faultset.evaluators.diagnosis.times import clock_text

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

_SPECIFICATION, _SIGN, _EVENT = 3.0, 2.0, 1.0
"""Strengths: a changed specification comes before its effects, and both before events."""
_VALUE_LENGTH = 40


def observe_objects(view: EpisodeView, moment_ns: int, services: Sequence[str]) -> list[Observation]:
    """Return changes of specifications, signs of trouble, and warnings after the healthy reference."""
    healthy_end_ns = min(view.reference[1], moment_ns)
    frame = read_object_states(view)
    observations: list[Observation] = []
    for history in object_histories(frame[frame["service"].isin(services)]):
        observations += _observe_specification_change(view, history, healthy_end_ns)
        observations += _observe_new_signs(view, history, healthy_end_ns)
    return observations + _observe_warnings(view, healthy_end_ns, services)


def _observe_specification_change(view: EpisodeView, history: ObjectHistory, healthy_end_ns: int) -> list[Observation]:
    """Return the last change of the specification after the reference."""
    states = [read_specification(history.kind, parse_state(text)) or {} for text in history.texts]
    for position in range(len(states) - 1, 0, -1):
        time_ns = history.times_ns[position]
        if time_ns < healthy_end_ns:
            break
        old, new = (flat_fields("", state) for state in states[position - 1 : position + 1])
        fields = [name for name in new.keys() | old.keys() if name != "generation" and old.get(name) != new.get(name)]
        if fields:
            changes = ", ".join(
                f"{name} from {_format_value(old.get(name))} to {_format_value(new.get(name))}"
                for name in sorted(fields)
            )
            text = f"{changes} at {clock_text(time_ns, view.window)}"
            return [_build_observation(history, time_ns, _SPECIFICATION, text)]
    return []


def _observe_new_signs(view: EpisodeView, history: ObjectHistory, healthy_end_ns: int) -> list[Observation]:
    """Return the most frequent sign of trouble that the object did not have in the reference, or its disappearance."""
    states = [parse_state(text) for text in history.texts]
    healthy = [state for time, state in zip(history.times_ns, states, strict=True) if time < healthy_end_ns]
    fields = frozenset[str]().union(*(state.keys() for state in healthy))
    usual_signs = set[str]().union(*(find_signs(history.kind, state, fields) for state in healthy))
    begins_ns: dict[str, int] = {}
    counts: dict[str, int] = defaultdict(int)
    for time_ns, state in zip(history.times_ns, states, strict=True):
        for sign in find_signs(history.kind, state, fields) - usual_signs if time_ns >= healthy_end_ns else ():
            begins_ns.setdefault(sign, time_ns)
            counts[sign] += 1
    last_ns = history.times_ns[-1]
    if healthy and last_ns < view.window[1] - 2.5 * SAMPLING_NS:
        begins_ns["gone"], counts["gone"] = last_ns, len(states)
    if not begins_ns:
        return []
    sign = max(sorted(begins_ns), key=lambda name: counts[name])
    share = min(1.0, counts[sign] / len(states))
    text = f"{sign} since {clock_text(begins_ns[sign], view.window)}"
    return [_build_observation(history, begins_ns[sign], _SIGN + share, text)]


def _build_observation(history: ObjectHistory, time_ns: int, strength: float, text: str) -> Observation:
    subject = f"{history.kind}/{history.name}"
    return Observation(
        service=history.service,
        kind="change",
        subject=subject,
        time_ns=time_ns,
        strength=strength,
        text=f"{printable(subject)}: {text}",
    )


def _observe_warnings(view: EpisodeView, healthy_end_ns: int, services: Sequence[str]) -> list[Observation]:
    """Return, for each service, its most frequent warning among warnings that did not occur in the reference."""
    frame = read_frame(view, "events", ("time", "type", "reason", "service", "message"))
    frame = frame[(frame["type"].astype(str) == "Warning") & frame["service"].isin(services)]
    observations = []
    for service, rows in frame.groupby("service", observed=True):
        usual_reasons = set(rows.loc[rows["time"] < healthy_end_ns, "reason"])
        rows = rows[(rows["time"] >= healthy_end_ns) & ~rows["reason"].isin(usual_reasons)]
        if rows.empty:
            continue
        reason = rows["reason"].astype(str).value_counts().index[0]
        lines = rows[rows["reason"].astype(str) == reason]
        time_ns = int(lines["time"].iloc[0])
        message = brief(printable(str(lines["message"].iloc[0])), 60)
        text = f"event {reason} ({len(lines)} times since {clock_text(time_ns, view.window)}): {message}"
        observations.append(
            Observation(
                service=str(service),
                kind="change",
                subject=f"event {reason}",
                time_ns=time_ns,
                strength=_EVENT,
                text=text,
            )
        )
    return observations


def _format_value(value: object) -> str:
    return "none" if value is None else brief(printable(str(value)), _VALUE_LENGTH)
