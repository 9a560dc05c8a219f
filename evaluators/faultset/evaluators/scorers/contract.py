"""The contract of a metric: how a number is called, read and, for a scorer, computed from one answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.results.truth import Truth

Unit = Literal["share", "s", "per hour", "rank", ""]
Episodes = Literal["fault", "no fault", "all"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number in the tables of one task.

    A metric with `compute` is a scorer: it gives one value for each answer, which is averaged over the seeds of a
    method and then over episodes, with an interval from what clusters differ by. Metrics without it follow
    from many answers together and are built in.
    """

    name: str
    """Key in `leaderboard.json` and in frames, for instance `ac1`."""
    title: str
    """Head of the column."""
    unit: Unit = ""
    """"share" for values from 0 to 1, "s", "per hour", "rank", or nothing."""
    better: Literal["higher", "lower"] = "higher"
    """Which values are the better ones."""
    meaning: str = ""
    """What is counted, in one sentence without a full stop."""
    task: str = ""
    """Task whose tables it belongs to: detection, localization or rca."""
    headline: bool = True
    """Whether a scorer is shown where space is short: in Markdown, on the terminal, in comparisons."""
    episodes: Episodes = "fault"
    """Episodes of a table that a scorer is computed on."""
    compute: Callable[[ResultRow], float] | None = None
    """From an answer with its truth to a value; NaN leaves the episode out. An answer whose status is not "ok" should
    score like the worst answer."""
    floor: Callable[[Truth], float] | None = None
    """What guessing scores on an episode, where that is known."""
    unscored: str = "no episode can be scored"
    """Reason that is shown where every value is NaN."""
