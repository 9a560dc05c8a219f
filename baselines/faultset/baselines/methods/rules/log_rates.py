"""The rate rule: a template that appears, or comes much more or less often than it did."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betainc

from faultset.baselines.api.contract import Detection, Evidence, Untrained, first_alarm
from faultset.baselines.api.registry import baseline
from faultset.baselines.api.seen_data import OWN
from faultset.baselines.features.held_out import LEAST_SAMPLES, Rows, folds
from faultset.baselines.features.step_counts import RECENT, Ints, Steps, idle_share, recent_sums, silences, steps_of
from faultset.baselines.logs.templates import TemplateLines, read_template_lines
from faultset.baselines.stats.distinct_numbers import distinct
from faultset.baselines.stats.limits import LEVEL, reference_limit
from faultset.baselines.stats.scaling import Matrix

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

RARE = 1e-4
_MOST_EVIDENCE = 5
_IMPOSSIBLE = 1e-300


def count_surprise(healthy: Ints, counts: Ints) -> Matrix:
    """Signed -log10 of the tail probability of counts, given counts of the same kind when all was well.

    The reference law is Poisson with a rate that is itself uncertain, and wider where healthy counts scatter more
    than Poisson's would: a negative binomial law.

    Parameters
    ----------
    healthy
        [n, k] counts in overlapping windows of `RECENT` steps.
    counts
        [t, k]

    Returns
    -------
    ndarray
        [t, k] -log10 of the tail probability; negative where there were too few.
    """
    windows = max(1.0, len(healthy) / RECENT)
    mean = (healthy.sum(axis=0) / max(1, len(healthy)) * windows + 0.5) / windows
    spread = healthy.var(axis=0, ddof=1) if len(healthy) > 1 else np.zeros(healthy.shape[1])
    dispersion = np.maximum(1.0, spread / mean) + 1 / windows
    size = mean / (dispersion - 1)
    at_most = betainc(size, counts + 1.0, 1 / dispersion)
    at_least = np.where(counts > 0, betainc(np.maximum(counts, 1.0), size, 1 - 1 / dispersion), 1.0)
    more, fewer = (-np.log10(np.maximum(2 * tail, _IMPOSSIBLE)) for tail in (at_least, at_most))
    return np.where(more > fewer, np.maximum(more, 0.0), -np.maximum(fewer, 0.0))


@baseline(
    "log-rate",
    title="Log rate rule",
    task="detection",
    paper="Textbook rule on counts; Poisson tails",
    kind="rule",
    developed_on=OWN,
    tables=("logs",),
    speed="instant",
    complexity="O(L + K·T)",
    departures=(
        "Counts are those of the last five steps, and wider than Poisson where the reference scatters more.",
        "A new template counts as one of which the reference had half a line.",
        "Two-sided: a template that comes less often, or falls silent for long, is reported too.",
    ),
)
class LogRateDetector(Untrained):
    """Detect when a template of some service comes with a frequency that its reference makes very unlikely.

    Parameters
    ----------
    rare
        Tail probability below which a count is reported; less with many templates.

    References
    ----------
    The rule is what operators write; He, Zhang, He, Lyu, ICWS 2017, for the templates.
    """

    def __init__(self, *, rare: float = RARE) -> None:
        self.rare = rare

    def detect(self, episode: EpisodeView) -> Detection:
        """Score every step after the reference by its most surprising count."""
        lines = read_template_lines(episode)
        steps = steps_of(episode)
        least = -np.log10(self.rare)
        if steps.healthy < LEAST_SAMPLES or not (steps.of(lines.times_ns) < steps.healthy).any():
            return Detection.silent(least)
        kinds, _, keys = distinct(lines.services * len(lines.texts) + lines.templates)
        counts = steps.counts(lines.times_ns, keys, len(kinds))
        windows, quiet = recent_sums(counts), silences(counts)

        def surprise_of(known: Rows, asked: Rows) -> Matrix:
            found = count_surprise(windows[known], windows[asked])
            silent = quiet[asked] * np.log10(idle_share(counts[known]))
            return np.where(-silent > np.abs(found), silent, found)

        # Windows that would begin before the view have too few lines.
        healthy = np.arange(RECENT - 1, steps.healthy)
        held_out = np.zeros(len(healthy))
        for rest, block in folds(len(healthy)):
            held_out[block] = np.abs(surprise_of(healthy[rest], healthy[block])).max(axis=1)
        least = max(least, float(np.log10(len(kinds) / LEVEL)))
        surprise = surprise_of(healthy, np.arange(steps.healthy, steps.count))
        limit = reference_limit(held_out, least=least)
        scores = np.abs(surprise).max(axis=1)
        evidence = _evidence(steps, first_alarm(steps.times_ns, scores > limit), surprise, kinds, lines, episode)
        return Detection.from_scores(steps.times_ns, scores, limit, evidence=evidence)


def _evidence(
    steps: Steps, alarm_ns: int | None, surprise: Matrix, kinds: Ints, lines: TemplateLines, episode: EpisodeView
) -> tuple[Evidence, ...]:
    if alarm_ns is None:
        return ()
    services = sorted(episode.services)
    row = surprise[int(np.searchsorted(steps.times_ns, alarm_ns))]
    reported = sorted(
        (-abs(score), services[kind // len(lines.texts)], lines.texts[kind % len(lines.texts)], score)
        for score, kind in zip(row.tolist(), kinds.tolist(), strict=True)
        if score
    )
    return tuple(
        Evidence(
            service=service,
            subject=text or "(empty line)",
            score=abs(score),
            detail=f"-log10 of the chance of {'more' if score > 0 else 'fewer'} such lines",
        )
        for _, service, text, score in reported[:_MOST_EVIDENCE]
    )
