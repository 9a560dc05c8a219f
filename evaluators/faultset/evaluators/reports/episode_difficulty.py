"""Which episodes nobody solves: for each fault episode how many methods were right, and who."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from faultset.evaluators.leaderboards.records import Leaderboard, is_headline
from faultset.evaluators.reports.derived_scores import Facts
from faultset.evaluators.results.rows import Truth

_NAMED = 4


@dataclass(frozen=True, kw_only=True)
class Solvers:
    """Methods, without controls, that were right about one episode in one task."""

    right: int
    asked: int
    names: tuple[str, ...]
    controls: int
    """Controls that were right."""

    @property
    def share(self) -> float:
        """Share of the methods that were asked."""
        return self.right / self.asked if self.asked else 0.0

    @property
    def some(self) -> str:
        """Name a few of them."""
        rest = len(self.names) - _NAMED
        return ", ".join(self.names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


@dataclass(frozen=True, kw_only=True)
class Hardness:
    """One episode, and how many methods coped with it."""

    episode: str
    what: str
    app: str
    verdict: str
    difficulty: str
    tasks: tuple[Solvers | None, ...]
    """In the order of `TASKS`; None where nobody was asked."""

    @property
    def unsolved(self) -> bool:
        """Whether nobody detects it, or nobody locates it whatever it is told."""
        detection, *locating = (task for task in self.tasks[:3])
        told = [task for task in locating if task is not None and task.asked]
        unheard = detection is not None and detection.asked > 0 and detection.right == 0
        return unheard or (bool(told) and all(task.right == 0 for task in told))


TASKS = (
    ("detection", "detected", "detected by"),
    ("localization", "detected", "located by, told the alarm"),
    ("localization", "oracle", "located by, told the onset"),
    ("rca", "oracle", "level and type named by"),
)
_RIGHT = 0.99


def hardness(board: Leaderboard, facts: Facts) -> tuple[Hardness, ...]:
    """Fault episodes, those that fewest methods solve first."""
    stratum_of = {e: stratum.name for stratum in board.strata for e in stratum.episodes}
    right = [_right(facts, task, protocol) for task, protocol, _ in TASKS]
    found = [
        Hardness(
            episode=truth.episode,
            what=what(truth),
            app=truth.app,
            verdict=truth.verdict,
            difficulty=stratum_of.get(truth.episode, ""),
            tasks=tuple(_solvers(by, truth.episode, facts) for by in right),
        )
        for truth in facts.truths.values()
        if truth.faulty
    ]
    return tuple(sorted(found, key=lambda one: (not is_headline(facts.truths[one.episode]), _ease(one), one.episode)))


def what(truth: Truth) -> str:
    """Name an episode by its fault."""
    if not truth.faulty:
        return f"no fault ({truth.no_fault_kind or 'plain'})"
    return f"{truth.fault} on {', '.join(truth.targets)}" if truth.targets else str(truth.fault)


def nobody(found: Sequence[Hardness], facts: Facts) -> tuple[int, int]:
    """Count headline fault episodes that nobody detects or nobody locates, and all of them."""
    headline = [one for one in found if is_headline(facts.truths[one.episode])]
    return sum(one.unsolved for one in headline), len(headline)


def _ease(one: Hardness) -> float:
    shares = [task.share for task in one.tasks[:3] if task is not None and task.asked]
    return sum(shares) / len(shares) if shares else 1.0


def _right(facts: Facts, task: str, protocol: str) -> Mapping[str, Mapping[str, float]]:
    if task == "detection":
        return {n: {e: one.right for e, one in by.items()} for n, by in facts.heard.items()}
    if task == "localization":
        return {n: {e: one.ac1 for e, one in by.items()} for n, by in facts.located.get(protocol, {}).items()}
    return {n: {e: one.joint for e, one in by.items()} for n, by in facts.diagnosed.get(protocol, {}).items()}


def _solvers(by: Mapping[str, Mapping[str, float]], episode: str, facts: Facts) -> Solvers | None:
    asked = [name for name, values in by.items() if episode in values]
    methods = [name for name in asked if not facts.is_control(name)]
    if not asked:
        return None
    right = [name for name in asked if by[name][episode] > _RIGHT]
    own = facts.ordered(name for name in right if not facts.is_control(name))
    return Solvers(right=len(own), asked=len(methods), names=tuple(own), controls=len(right) - len(own))
