"""Cards of methods with paper, departures, cost and input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from faultset.evaluators.execution.plan import inputs_beyond_telemetry
from faultset.evaluators.leaderboards import number_formats
from faultset.evaluators.leaderboards.scores import kind_rank
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.statistics.intervals import median_or_nan

if TYPE_CHECKING:
    from faultset.baselines.api.registry import BaselineSpec

NEEDS = {
    "onset": "the true onset",
    "sli": "the clients' requests",
    "alarm_location": "the location of the alarm",
    "labels": "labels of training episodes",
    "references": "healthy references of training episodes with a fault",
    "threshold": "a threshold from other training episodes",
}
TASKS = {"detection": "Detection", "localization": "Localization", "rca": "Root cause"}


@dataclass(frozen=True, kw_only=True)
class Card:
    """Facts about a method for readers of a report."""

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
    """Return cards by task, controls last."""
    by_method: dict[str, list[ResultRow]] = {}
    for row in rows:
        by_method.setdefault(row.baseline, []).append(row)
    by_task: dict[str, list[Card]] = {title: [] for title in TASKS.values()}
    for spec in sorted(specs, key=lambda spec: (kind_rank(spec.kind), spec.name)):
        if spec.name in by_method:
            by_task.setdefault(TASKS.get(spec.task, spec.task), []).append(_build_card(spec, by_method[spec.name]))
    return [(title, task_cards) for title, task_cards in by_task.items() if task_cards]


def _build_card(spec: BaselineSpec, rows: Sequence[ResultRow]) -> Card:
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
        seconds=number_formats.seconds(median_or_nan([row.cpu_seconds for row in rows])),
        fit_seconds=number_formats.seconds(median_or_nan([row.fit_seconds for row in rows])),
        memory=number_formats.mebibytes(median_or_nan([row.peak_bytes for row in rows])),
    )


def top_methods(
    names: Sequence[str], kinds: Mapping[str, str], *, methods: int = 10, controls: int = 3
) -> tuple[list[str], list[str]]:
    """Split a ranked list into names that are shown and names that are collapsed.

    The first methods, all methods of the AIOpsLab paper, and the first controls are shown. If only one or two names
    remain, these are shown too.
    """
    non_controls = [name for name in names if kinds[name] != "control"]
    control_names = [name for name in names if kinds[name] == "control"]
    shown = {
        *non_controls[:methods],
        *control_names[:controls],
        *(name for name in non_controls if kinds[name] == "named"),
    }
    tail = [name for name in names if name not in shown]
    if len(tail) <= 2:
        return list(names), []
    return [name for name in names if name in shown], tail
