"""What is needed to score recorded agents: AIOpsLab's own rules, billed tokens, repeated trials."""

from __future__ import annotations

import math
from collections.abc import Sequence

Turn = tuple[str, int]
"""Role of a message and its tokens."""


def aiopslab_localization(answer: object, truth: str) -> tuple[float, bool]:
    """Percent and success by AIOpsLab's rule: an exact answer, or the truth among several names.

    Names are compared as they stand, and a list with a name twice is not that name. Ranked as one tied block, the same
    answer has the same expected AC@1.
    """
    named = list(answer) if isinstance(answer, list | tuple) else [answer]
    if named == [truth]:
        return 100.0, True
    return (100.0 / len(named), False) if truth in named else (0.0, False)


def tokens_counted_once(turns: Sequence[Turn]) -> int:
    """Tokens of all observations, each once, as AIOpsLab counts input."""
    return sum(tokens for role, tokens in turns if role == "env")


def tokens_billed(turns: Sequence[Turn]) -> int:
    """Input tokens of an interface that is sent the whole history before every answer."""
    return sum(
        sum(tokens for _, tokens in turns[:place]) for place, (role, _) in enumerate(turns) if role == "assistant"
    )


def pass_at(n: int, successes: int, k: int) -> float:
    """Chance that at least one of k trials, drawn without replacement from n, succeeds (Chen et al., 2021)."""
    if n < k:
        return math.nan
    return 1.0 - math.comb(n - successes, k) / math.comb(n, k)


def pass_all(n: int, successes: int, k: int) -> float:
    """Chance that all of k trials succeed (pass^k of tau-bench)."""
    return math.comb(successes, k) / math.comb(n, k) if n >= k else math.nan
