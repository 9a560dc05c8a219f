"""The detector."""

from typing import Self

from error_bursts.counts import error_counts
from faultset.baselines import Detection, baseline


@baseline(
    "error-bursts",
    title="Error bursts",
    task="detection",
    paper="None; an example",
    kind="rule",
    tables=("logs",),
    speed="instant",
    complexity="O(L)",
)
class ErrorBursts:
    """Detect steps with more recent error lines than any healthy episode had.

    Parameters
    ----------
    steps
        Number of steps over which error lines are counted.
    """

    def __init__(self, *, steps: int = 5) -> None:
        self.steps = steps
        self.limit_ = 0.0

    def fit(self, healthy) -> Self:
        """Learn the largest count of the healthy episodes; there may be none."""
        counts = [error_counts(episode, self.steps)[1] for episode in healthy]
        self.limit_ = max((float(count.max(initial=0)) for count in counts), default=0.0)
        return self

    def detect(self, episode) -> Detection:
        """Score each step after the reference by its count."""
        times_ns, counts = error_counts(episode, self.steps)
        later = times_ns > episode.reference[1]
        limit = max(self.limit_, float(counts[~later].max(initial=0)))
        return Detection.from_scores(times_ns[later], counts[later], limit)
