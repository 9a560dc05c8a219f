"""Labels of a dataset's episodes as the scoring needs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from faultset.datasets.format.context import EpisodeContext
from faultset.evaluators.results.rows import Truth


def truth_of(label: Mapping[str, Any], context: EpisodeContext) -> Truth:
    """Take what scoring needs from an episode's label.

    The onset is the first act of the injection. A root cause is found by its service or by any accepted name that is
    a candidate; a fault whose causes are no candidates has none and is no localization case. A cause of kind Pod
    under its service's own name says that a pod of that service is at fault, but not which.
    """
    fault = label["fault"]
    candidates = tuple(context.services)
    causes = label["root_causes"] if fault is not None else ()
    return Truth(
        episode=context.episode,
        app=context.app,
        fault=fault,
        no_fault_kind=label["no_fault_kind"],
        targets=tuple(label["targets"]),
        causes=tuple(dict.fromkeys(_accepted(causes, candidates))),
        candidates=candidates,
        pod_causes=tuple(dict.fromkeys(cause["name"] for cause in causes if _names_a_pod(cause))),
        metric_causes=tuple(
            dict.fromkeys((cause["service"], cause["metric"]) for cause in causes if cause.get("metric"))
        ),
        calls=tuple(context.calls),
        system_level=label["system_level"],
        fault_type=label["fault_type"],
        verdict=label["verdict"],
        profile=label["profile"],
        view_start_ns=context.view_start_ns,
        view_end_ns=context.view_end_ns,
        reference_end_ns=context.reference_end_ns,
        onset_ns=label["inject_start"] if fault is not None else None,
        manifest_ns=label["first_manifest"] if fault is not None else None,
    )


def _names_a_pod(cause: Mapping[str, Any]) -> bool:
    return cause["kind"] == "Pod" and bool(cause["name"]) and cause["name"] != cause["service"]


def _accepted(causes: Iterable[Mapping[str, Any]], candidates: tuple[str, ...]) -> Iterable[tuple[str, ...]]:
    for cause in causes:
        accepted = [cause["service"], *sorted(cause["accepted"] or ())]
        names = tuple(dict.fromkeys(name for name in accepted if name in candidates))
        if names:
            yield names
