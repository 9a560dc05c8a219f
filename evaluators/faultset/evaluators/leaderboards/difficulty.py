"""How hard an episode is: which of the trivial rules already name its cause."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from faultset.evaluators.leaderboards.locating import located
from faultset.evaluators.leaderboards.records import HEADLINE, Stratum
from faultset.evaluators.rows import ResultRow

TRIVIAL_RULE = "max-z"
ONE_MODALITY_RULES = ("loudest-log", "most-restarts", "series-stopped", "kubernetes-state", "last-change")
MEANINGS = {
    "trivial": f"{TRIVIAL_RULE} alone names the cause first",
    "one modality": f"not trivial, but one of {', '.join(ONE_MODALITY_RULES)} names it first",
    "hard": "none of these rules does",
    "unknown": f"{TRIVIAL_RULE} was not evaluated",
}


def strata_of(rows: Sequence[ResultRow]) -> tuple[Stratum, ...]:
    """Sort manifest fault episodes by difficulty, told the true onset where that was evaluated."""
    asked = [row for row in rows if row.task == "localization" and row.truth.verdict == HEADLINE]
    if not asked:
        return ()
    protocol = "oracle" if any(row.protocol == "oracle" for row in asked) else "detected"
    by: dict[str, dict[str, list[ResultRow]]] = defaultdict(lambda: defaultdict(list))
    for row in asked:
        if row.protocol == protocol:
            by[row.baseline][row.episode].append(row)
    ac1 = {name: {e: located(found).ac1 for e, found in episodes.items()} for name, episodes in by.items()}
    members: dict[str, list[str]] = {name: [] for name in MEANINGS}
    for episode in sorted({row.episode for row in asked}):
        members[_difficulty(episode, ac1)].append(episode)
    return tuple(
        Stratum(
            name=name,
            meaning=MEANINGS[name],
            episodes=tuple(episodes),
            ac1={
                baseline: float(np.mean([values[e] for e in episodes if e in values]))
                for baseline, values in sorted(ac1.items())
                if any(e in values for e in episodes)
            },
        )
        for name, episodes in members.items()
        if episodes or name != "unknown"
    )


def _difficulty(episode: str, ac1: dict[str, dict[str, float]]) -> str:
    solves = lambda rule: ac1.get(rule, {}).get(episode, 0.0) > 0.99  # noqa: E731
    if TRIVIAL_RULE not in ac1:
        return "unknown"
    if solves(TRIVIAL_RULE):
        return "trivial"
    if any(solves(rule) for rule in ONE_MODALITY_RULES):
        return "one modality"
    return "hard"
