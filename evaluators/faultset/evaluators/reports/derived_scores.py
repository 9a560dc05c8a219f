"""What each method said about each episode, looked up once for all figures of a report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from faultset.evaluators.leaderboards.diagnosis import Diagnosed, diagnosed
from faultset.evaluators.leaderboards.localization import Located, located
from faultset.evaluators.reports.alarmed import Alarmed, alarmed
from faultset.evaluators.results.rows import ResultRow, Truth

KIND_ORDER = ("named", "method", "rule", "control")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Scores per baseline and episode."""

    truths: Mapping[str, Truth]
    kinds: Mapping[str, str]
    heard: Mapping[str, Mapping[str, Alarmed]]
    """Detector -> episode."""
    located: Mapping[str, Mapping[str, Mapping[str, Located]]]
    """Protocol -> localizer -> episode."""
    diagnosed: Mapping[str, Mapping[str, Mapping[str, Diagnosed]]]
    """Protocol -> diagnoser -> episode."""
    rows: Mapping[tuple[str, str], Mapping[str, Mapping[str, Sequence[ResultRow]]]]
    """(task, protocol) -> baseline -> episode -> rows, one for each seed."""

    def ordered(self, names: Iterable[str]) -> list[str]:
        """Methods first, controls last, by name within a kind."""
        return sorted(names, key=lambda name: (_place(self.kinds[name]), name))

    def is_control(self, name: str) -> bool:
        """Whether a method ignores the evidence or looks at one trivial sign of it."""
        return self.kinds[name] == "control"


def facts_of(rows: Sequence[ResultRow]) -> Facts:
    """Score every answer about a tested episode; answers of training episodes and later alarms are left out."""
    by: dict[tuple[str, str], dict[str, dict[str, list[ResultRow]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    truths = {}
    for row in sorted(rows, key=lambda row: row.key):
        if row.protocol in ("detected", "own", "oracle"):
            by[row.task, row.protocol][row.baseline][row.episode].append(row)
            truths[row.episode] = row.truth
    by_task: dict[str, dict[str, dict[str, dict[str, list[ResultRow]]]]] = defaultdict(dict)
    for (task, protocol), found in by.items():
        by_task[task][protocol] = found
    return Facts(
        truths=truths,
        kinds={row.baseline: row.kind for row in rows},
        heard={
            name: {e: alarmed(found) for e, found in episodes.items()}
            for name, episodes in by_task["detection"].get("detected", {}).items()
        },
        located={
            protocol: {
                name: {e: located(found) for e, found in episodes.items() if truths[e].causes}
                for name, episodes in names.items()
            }
            for protocol, names in by_task["localization"].items()
        },
        diagnosed={
            protocol: {
                name: {
                    e: diagnosed(found)
                    for e, found in episodes.items()
                    if truths[e].system_level and truths[e].fault_type
                }
                for name, episodes in names.items()
            }
            for protocol, names in by_task["rca"].items()
        },
        rows=by,
    )


def foremost(
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


def _place(kind: str) -> int:
    return KIND_ORDER.index(kind) if kind in KIND_ORDER else len(KIND_ORDER)
