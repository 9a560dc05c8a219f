"""How hard an episode is: which of the trivial rules already name its cause."""

from __future__ import annotations

import numpy as np

from faultset.evaluators.leaderboards.records import Stratum, is_headline
from faultset.evaluators.leaderboards.scores import EpisodeScores, Setting

TRIVIAL_RULE = "max-z"
ONE_MODALITY_RULES = ("loudest-log", "most-restarts", "series-stopped", "kubernetes-state", "last-change")
MEANINGS = {
    "trivial": f"{TRIVIAL_RULE} alone names the cause first",
    "one modality": f"not trivial, but one of {', '.join(ONE_MODALITY_RULES)} names it first",
    "hard": "none of these rules does",
    "unknown": f"{TRIVIAL_RULE} was not evaluated",
}


def strata_of(scores: EpisodeScores) -> tuple[Stratum, ...]:
    """Sort headline fault episodes by difficulty, by the oracle protocol where that was evaluated."""
    right = scores.right(Setting("localization", "oracle")) or scores.right(Setting("localization", "detected"))
    ac1 = {
        name: {e: value for e, value in values.items() if is_headline(scores.truths[e])}
        for name, values in right.items()
    }
    if not any(ac1.values()):
        return ()
    members: dict[str, list[str]] = {name: [] for name in MEANINGS}
    for episode in sorted({episode for values in ac1.values() for episode in values}):
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
