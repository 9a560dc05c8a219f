"""Difficulty of fault episodes: how many methods were right, and which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from faultset.evaluators.leaderboards.records import Leaderboard, is_headline
from faultset.evaluators.leaderboards.scores import EpisodeScores, Setting
from faultset.evaluators.results.truth import Truth

_MAX_NAMES = 4


@dataclass(frozen=True, kw_only=True)
class Solvers:
    """Methods that answered a task correctly for an episode; controls are counted separately."""

    right: int
    run: int
    """Number of methods that were run."""
    names: tuple[str, ...]
    controls: int
    """Number of controls that were right."""

    @property
    def share(self) -> float:
        """Share of the methods that were right."""
        return self.right / self.run if self.run else 0.0

    @property
    def first_names(self) -> str:
        """Names of the first methods that were right."""
        rest = len(self.names) - _MAX_NAMES
        return ", ".join(self.names[:_MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")


@dataclass(frozen=True, kw_only=True)
class EpisodeDifficulty:
    """An episode, and how many methods answered correctly."""

    episode: str
    title: str
    app: str
    verdict: str
    difficulty: str
    tasks: tuple[Solvers | None, ...]
    """In the order of `TASKS`; None if no method was run."""

    @property
    def unsolved(self) -> bool:
        """Whether no method detects it, or no method locates it under any protocol."""
        detection, *localization = self.tasks[:3]
        attempted = [task for task in localization if task is not None and task.run]
        undetected = detection is not None and detection.run > 0 and detection.right == 0
        return undetected or (bool(attempted) and all(task.right == 0 for task in attempted))


TASKS = (
    ("detection", "detected", "detected by"),
    ("localization", "detected", "located from the alarm by"),
    ("localization", "oracle", "located from the onset by"),
    ("rca", "oracle", "level and type named by"),
)
_RIGHT = 0.99


def episode_difficulties(board: Leaderboard, scores: EpisodeScores) -> tuple[EpisodeDifficulty, ...]:
    """Return all fault episodes: headline episodes first, then by the share of methods that solved them, ascending."""
    stratum_of = {e: stratum.name for stratum in board.strata for e in stratum.episodes}
    right = [scores.compute_ranked_correctness(Setting(task, protocol)) for task, protocol, _ in TASKS]
    episodes = [
        EpisodeDifficulty(
            episode=truth.episode,
            title=episode_title(truth),
            app=truth.app,
            verdict=truth.verdict,
            difficulty=stratum_of.get(truth.episode, ""),
            tasks=tuple(_find_solvers(values, truth.episode, scores) for values in right),
        )
        for truth in scores.truths.values()
        if truth.faulty
    ]
    return tuple(
        sorted(episodes, key=lambda e: (not is_headline(scores.truths[e.episode]), _measure_ease(e), e.episode))
    )


def episode_title(truth: Truth) -> str:
    """Return the fault and its targets, or the kind of a fault-free episode."""
    if not truth.faulty:
        return f"no fault ({truth.no_fault_kind or 'plain'})"
    return f"{truth.fault} on {', '.join(truth.targets)}" if truth.targets else str(truth.fault)


def count_unsolved(episodes: Sequence[EpisodeDifficulty], scores: EpisodeScores) -> tuple[int, int]:
    """Count the unsolved and all headline fault episodes."""
    headline = [episode for episode in episodes if is_headline(scores.truths[episode.episode])]
    return sum(episode.unsolved for episode in headline), len(headline)


def _measure_ease(episode: EpisodeDifficulty) -> float:
    shares = [task.share for task in episode.tasks[:3] if task is not None and task.run]
    return sum(shares) / len(shares) if shares else 1.0


def _find_solvers(by_name: Mapping[str, Mapping[str, float]], episode: str, scores: EpisodeScores) -> Solvers | None:
    run = [name for name, values in by_name.items() if episode in values]
    methods = [name for name in run if not scores.is_control(name)]
    if not run:
        return None
    right = [name for name in run if by_name[name][episode] > _RIGHT]
    right_methods = scores.sort_methods(name for name in right if not scores.is_control(name))
    return Solvers(
        right=len(right_methods),
        run=len(methods),
        names=tuple(right_methods),
        controls=len(right) - len(right_methods),
    )
