"""What an experiment's status says: pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from faultset.collector.platforms.api.objects import Object

_LONGEST = 300


def is_injected(experiment: Object) -> bool:
    """Say whether the experiment acts on all that it selects.

    >>> is_injected({"status": {"conditions": [{"type": "AllInjected", "status": "True"}]}})
    False

    It must have selected something:

    >>> said = [{"type": "Selected", "status": "True"}, {"type": "AllInjected", "status": "True"}]
    >>> is_injected({"status": {"conditions": said}})
    True
    """
    held = {one["type"] for one in _status(experiment).get("conditions") or () if one.get("status") == "True"}
    return {"Selected", "AllInjected"} <= held


def failure_of(experiment: Object) -> str:
    """Return why the experiment does not act, or does not end, in the words of Chaos Mesh; empty when it says nothing.

    The newest failure of an injection or a removal counts, then what a condition gives as its reason.
    """
    failed = [event for record in _records(experiment) for event in record.get("events") or () if _is_failure(event)]
    newest = max(failed, key=lambda event: str(event.get("timestamp") or ""), default=None)
    if newest is not None:
        return _one_line(newest["message"])
    conditions = _status(experiment).get("conditions") or ()
    reasons = [f"{one['type']}: {one['reason']}" for one in conditions if one.get("reason")]
    return _one_line("; ".join(reasons))


def disturbed_pods(experiment: Object) -> list[str]:
    """Return the names of the pods on which the experiment acts, or may act."""
    acting = [record["id"] for record in _records(experiment) if str(record.get("phase", "")).startswith("Injected")]
    return sorted({identity.split("/")[1] for identity in acting if "/" in identity})


def selected_pods(experiment: Object) -> Iterator[tuple[str, str]]:
    """Yield namespace and name of the pods that the experiment names."""
    pods: Mapping[str, list[str]] = experiment["spec"]["selector"].get("pods") or {}
    for namespace, names in pods.items():
        for name in names:
            yield namespace, name


def _status(experiment: Object) -> Mapping[str, Any]:
    return experiment.get("status") or {}


def _records(experiment: Object) -> list[dict[str, Any]]:
    return (_status(experiment).get("experiment") or {}).get("containerRecords") or []


def _is_failure(event: Mapping[str, Any]) -> bool:
    return event.get("type") == "Failed" and bool(event.get("message"))


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST]
