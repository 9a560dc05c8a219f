"""Labels of a dataset's episodes as the scoring needs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from faultset.datasets.contexts import EpisodeContext
from faultset.datasets.errors import DataError
from faultset.evaluators.rows import Truth


def truth_of(label: Mapping[str, Any], context: EpisodeContext) -> Truth:
    """Take what scoring needs from an episode's label.

    The onset is the first act of the injection. A root cause is found by its service or by any accepted name
    that is a candidate.
    """
    fault = label["fault"]
    candidates = tuple(context.services)
    return Truth(
        episode=context.episode,
        app=context.app,
        fault=fault,
        no_fault_kind=label["no_fault_kind"],
        targets=tuple(label["targets"]),
        causes=tuple(_causes(label, candidates)) if fault is not None else (),
        candidates=candidates,
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


def _causes(label: Mapping[str, Any], candidates: tuple[str, ...]) -> Iterable[tuple[str, ...]]:
    seen: set[tuple[str, ...]] = set()
    for cause in label["root_causes"]:
        accepted = [cause["service"], *sorted(cause["accepted"] or ())]
        names = tuple(dict.fromkeys(name for name in accepted if name in candidates))
        if names and names not in seen:
            seen.add(names)
            yield names
    if not seen:
        raise DataError(
            f"episode {label['episode']}: none of its root causes is among the candidates "
            f'{", ".join(candidates)}; run "faultset dataset verify"'
        )
