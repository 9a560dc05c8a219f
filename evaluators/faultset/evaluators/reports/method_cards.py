"""Cards of the methods that were evaluated: paper, departures, cost and needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from faultset.evaluators.execution.plan import inputs_beyond_telemetry
from faultset.evaluators.leaderboards import number_formats
from faultset.evaluators.leaderboards.scores import kind_rank
from faultset.evaluators.results.rows import ResultRow

if TYPE_CHECKING:
    from faultset.baselines.api.registry import BaselineSpec

NEEDS = {
    "onset": "the true onset",
    "sli": "the clients' requests",
    "alarm_place": "where the alarm was seen",
    "labels": "labels of training episodes",
    "references": "healthy references of training episodes with a fault",
    "threshold": "a threshold from training episodes that it was not fitted on",
}
TASKS = {"detection": "Detection", "localization": "Localization", "rca": "Root cause"}


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a reader should know about one method."""

    name: str
    title: str
    kind: str
    paper: str
    departures: tuple[str, ...]
    complexity: str
    reads: str
    needs: str
    seen: str
    stochastic: bool
    seconds: str
    fit_seconds: str
    memory: str


def cards(specs: Sequence[BaselineSpec], rows: Sequence[ResultRow]) -> list[tuple[str, list[Card]]]:
    """Cards by task, methods first."""
    by: dict[str, list[ResultRow]] = {}
    for row in rows:
        by.setdefault(row.baseline, []).append(row)
    found: dict[str, list[Card]] = {title: [] for title in TASKS.values()}
    for spec in sorted(specs, key=lambda spec: (kind_rank(spec.kind), spec.name)):
        if spec.name in by:
            found.setdefault(TASKS.get(spec.task, spec.task), []).append(_card(spec, by[spec.name]))
    return [(title, own) for title, own in found.items() if own]


def _card(spec: BaselineSpec, rows: Sequence[ResultRow]) -> Card:
    return Card(
        name=spec.name,
        title=spec.title,
        kind=spec.kind,
        paper=spec.paper,
        departures=spec.departures,
        complexity=spec.complexity,
        reads=", ".join(spec.tables) or "nothing",
        needs=", ".join(NEEDS.get(need, need) for need in inputs_beyond_telemetry(spec)) or "nothing beyond telemetry",
        seen="not declared" if spec.developed_on is None else "; ".join(spec.developed_on) or "nothing",
        stochastic=spec.stochastic,
        seconds=number_formats.seconds(_median([row.cpu_seconds for row in rows])),
        fit_seconds=number_formats.seconds(_median([row.fit_seconds for row in rows])),
        memory=number_formats.mebibytes(_median([row.peak_bytes for row in rows])),
    )


def _median(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else float("nan")


def top_methods(
    names: Sequence[str], kinds: Mapping[str, str], *, methods: int = 10, controls: int = 3
) -> tuple[list[str], list[str]]:
    """Part a ranked list into what is shown at once and what is folded, both in the order given.

    Shown are the first methods, all that the AIOpsLab paper names, and the first controls. A tail of one or two is
    not worth folding.
    """
    real = [name for name in names if kinds[name] != "control"]
    others = [name for name in names if kinds[name] == "control"]
    shown = {*real[:methods], *others[:controls], *(name for name in real if kinds[name] == "named")}
    tail = [name for name in names if name not in shown]
    if len(tail) <= 2:
        return list(names), []
    return [name for name in names if name in shown], tail
