"""What each method said about each episode, looked up once for all figures of a report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from faultset.evaluators.leaderboards.hearing import Heard, heard
from faultset.evaluators.leaderboards.locating import Located, located
from faultset.evaluators.rows import ResultRow, Truth

KIND_ORDER = ("named", "method", "rule", "control")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Scores per baseline and episode."""

    truths: dict[str, Truth]
    kinds: dict[str, str]
    detection: dict[str, dict[str, Heard]]
    localization: dict[str, dict[str, dict[str, Located]]]
    """Protocol -> baseline -> episode."""
    rows: dict[tuple[str, str, str], list[ResultRow]]
    """(baseline, episode, protocol) -> rows, one for each seed."""

    def ordered(self, names: Iterable[str]) -> list[str]:
        """Methods first, controls last, by name within a kind."""
        return sorted(names, key=lambda name: (_place(self.kinds[name]), name))


def facts_of(rows: Sequence[ResultRow]) -> Facts:
    """Score every row for the figures."""
    grouped: dict[tuple[str, str, str], list[ResultRow]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.key):
        grouped[row.baseline, row.episode, row.protocol].append(row)
    detection: dict[str, dict[str, Heard]] = defaultdict(dict)
    localization: dict[str, dict[str, dict[str, Located]]] = defaultdict(lambda: defaultdict(dict))
    for (baseline, episode, protocol), found in grouped.items():
        if found[0].task == "detection":
            detection[baseline][episode] = heard(found)
        else:
            localization[protocol][baseline][episode] = located(found)
    return Facts(
        truths={row.episode: row.truth for row in rows},
        kinds={row.baseline: row.kind for row in rows},
        detection=dict(detection),
        localization={protocol: dict(by) for protocol, by in localization.items()},
        rows=dict(grouped),
    )


def _place(kind: str) -> int:
    return KIND_ORDER.index(kind) if kind in KIND_ORDER else len(KIND_ORDER)
