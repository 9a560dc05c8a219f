"""How hard each fault episode is: how many methods were right about it, and which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from faultset.evaluators.leaderboards.records import Leaderboard, is_headline
from faultset.evaluators.leaderboards.scores import EpisodeScores, Setting
from faultset.evaluators.results.truth import Truth

_NAMED = 4


@dataclass(frozen=True, kw_only=True)
class Solvers:
    """Methods, without controls, that were right about one episode in one task."""

    right: int
    run: int
    """Methods that were run on it."""
    names: tuple[str, ...]
    controls: int
    """Controls that were right."""

    @property
    def share(self) -> float:
        """Share of the methods that were run."""
        return self.right / self.run if self.run else 0.0

    @property
    def some(self) -> str:
        """Name a few of them."""
        rest = len(self.names) - _NAMED
        return ", ".join(self.names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


@dataclass(frozen=True, kw_only=True)
class EpisodeDifficulty:
    """One episode, and how many methods were right about it."""

    episode: str
    title: str
    app: str
    verdict: str
    difficulty: str
    tasks: tuple[Solvers | None, ...]
    """In the order of `TASKS`; None where no method was run."""

    @property
    def unsolved(self) -> bool:
        """Whether no method detects it, or none locates it under any protocol."""
        detection, *locating = (task for task in self.tasks[:3])
        located = [task for task in locating if task is not None and task.run]
        undetected = detection is not None and detection.run > 0 and detection.right == 0
        return undetected or (bool(located) and all(task.right == 0 for task in located))


TASKS = (
    ("detection", "detected", "detected by"),
    ("localization", "detected", "located by, given the alarm"),
    ("localization", "oracle", "located by, given the onset"),
    ("rca", "oracle", "level and type named by"),
)
_RIGHT = 0.99


def episode_difficulties(board: Leaderboard, scores: EpisodeScores) -> tuple[EpisodeDifficulty, ...]:
    """Fault episodes, those that fewest methods solve first."""
    stratum_of = {e: stratum.name for stratum in board.strata for e in stratum.episodes}
    right = [scores.right(Setting(task, protocol)) for task, protocol, _ in TASKS]
    found = [
        EpisodeDifficulty(
            episode=truth.episode,
            title=episode_title(truth),
            app=truth.app,
            verdict=truth.verdict,
            difficulty=stratum_of.get(truth.episode, ""),
            tasks=tuple(_solvers(by, truth.episode, scores) for by in right),
        )
        for truth in scores.truths.values()
        if truth.faulty
    ]
    return tuple(sorted(found, key=lambda one: (not is_headline(scores.truths[one.episode]), _ease(one), one.episode)))


def episode_title(truth: Truth) -> str:
    """Name an episode by its fault."""
    if not truth.faulty:
        return f"no fault ({truth.no_fault_kind or 'plain'})"
    return f"{truth.fault} on {', '.join(truth.targets)}" if truth.targets else str(truth.fault)


def count_unsolved(found: Sequence[EpisodeDifficulty], scores: EpisodeScores) -> tuple[int, int]:
    """Count headline fault episodes that no method detects or none locates, and all of them."""
    headline = [one for one in found if is_headline(scores.truths[one.episode])]
    return sum(one.unsolved for one in headline), len(headline)


def _ease(one: EpisodeDifficulty) -> float:
    shares = [task.share for task in one.tasks[:3] if task is not None and task.run]
    return sum(shares) / len(shares) if shares else 1.0


def _solvers(by: Mapping[str, Mapping[str, float]], episode: str, scores: EpisodeScores) -> Solvers | None:
    run = [name for name, values in by.items() if episode in values]
    methods = [name for name in run if not scores.is_control(name)]
    if not run:
        return None
    right = [name for name in run if by[name][episode] > _RIGHT]
    own = scores.ordered(name for name in right if not scores.is_control(name))
    return Solvers(right=len(own), run=len(methods), names=tuple(own), controls=len(right) - len(own))
