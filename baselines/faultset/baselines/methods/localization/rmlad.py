"""Anomaly scores of log lines per time bin, for the system and for each service."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy.stats import rankdata

from faultset.baselines.contract import Evidence, Ranking, TrainingFreeBaseline
from faultset.baselines.features.log_lines import Drain
from faultset.baselines.features.metric_alarms import rank_by_series
from faultset.baselines.features.windows import localization_windows, measure_deviations
from faultset.baselines.registry import localizer
from faultset.baselines.stats.dependence import knn_information
from faultset.baselines.stats.scaling import Matrix, mean_and_sd
from faultset.core.times import SECOND_NS
from faultset.datasets.views import EpisodeView, read_table

Ints = npt.NDArray[np.int64]


class NextTemplate:
    """Predict the next log template from the last few; for an unseen context, use a shorter one.

    Parameters
    ----------
    order
        Largest number of previous templates in a context.
    top
        Number of candidates that count as predicted.
    halve
        Whether to limit `top` to half of the known templates.
    """

    def __init__(self, *, order: int = 3, top: int = 9, halve: bool = True) -> None:
        self.order = order
        self.top = top
        self.halve = halve

    def fit(self, templates: Sequence[int]) -> NextTemplate:
        """Learn from one healthy sequence of template ids."""
        sequence = list(templates)
        counts: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for length in range(1, self.order + 1):
            windows = zip(*(sequence[shift:] for shift in range(length + 1)), strict=False)
            for window, count in Counter(windows).items():
                counts[window[:-1]][window[-1]] += count
        top = min(self.top, max(1, len(set(sequence)) // 2)) if self.halve else self.top
        self.likely_ = {
            context: frozenset(sorted(follow, key=lambda template: (-follow[template], template))[:top])
            for context, follow in counts.items()
        }
        self.last_ = tuple(sequence[-self.order :])
        return self

    def misses(self, templates: Sequence[int], after: Sequence[int] | None = None) -> npt.NDArray[np.bool_]:
        """Return which templates were unexpected after the templates `after`, by default the training sequence.

        Lines after an unseen context are unexpected.
        """
        previous = tuple(self.last_ if after is None else after)
        sequence = [*previous, *templates]
        verdicts = np.ones(len(templates), dtype=bool)
        cache: dict[tuple[int, ...], frozenset[int] | None] = {}
        for position in range(len(previous), len(sequence)):
            context = tuple(sequence[max(0, position - self.order) : position])
            if context not in cache:
                suffixes = (context[cut:] for cut in range(len(context)))
                cache[context] = next((self.likely_[c] for c in suffixes if c in self.likely_), None)
            likely = cache[context]
            verdicts[position - len(previous)] = likely is None or sequence[position] not in likely
        return verdicts


def parameter_anomalies(
    templates: Ints,
    services: Ints,
    times_ns: Ints,
    numbers: Sequence[Sequence[float]],
    healthy: npt.NDArray[np.bool_],
    *,
    sigmas: float = 3.0,
) -> tuple[npt.NDArray[np.bool_], bool]:
    """Return which lines have a parameter, or a pause before them, that is unusual for healthy lines of their template.

    Also return whether any line has a numeric parameter.
    """
    counts = np.array([len(parameters) for parameters in numbers], dtype=np.int64)
    anomalous = np.zeros(len(templates), dtype=bool)
    keys = np.stack([services, templates, counts], axis=1)
    order = np.lexsort([np.arange(len(templates)), counts, templates, services])
    borders = np.flatnonzero((np.diff(keys[order], axis=0) != 0).any(axis=1)) + 1
    for rows in np.split(order, borders) if len(order) else []:
        pause = np.diff(times_ns[rows], prepend=times_ns[rows[0]]).astype(float)[:, None]
        pause[0] = np.nan
        values = np.array([numbers[row] for row in rows], dtype=float).reshape(len(rows), -1)
        vector = np.hstack([pause, values])
        reference = vector[healthy[rows]]
        if len(reference) < 2:
            continue
        mean, sd = mean_and_sd(reference)
        with np.errstate(invalid="ignore"):
            anomalous[rows] = (np.abs(vector - mean) > sigmas * sd).any(axis=1)
    return anomalous, bool(counts.any())


def binned_share(bins: Ints, verdicts: npt.NDArray[np.bool_], count: int) -> Matrix:
    """Return the share of true verdicts among the lines of each bin; 0 for empty bins."""
    lines = np.bincount(bins, minlength=count)[:count]
    return np.bincount(bins, weights=verdicts, minlength=count)[:count] / np.maximum(lines, 1)


def combined_score(template_share: Matrix, parameter_share: Matrix, weight: float = 0.5) -> Matrix:
    """Return the weighted mean of the shares of unexpected templates and unusual parameters."""
    return weight * template_share + (1 - weight) * parameter_share


@dataclass(frozen=True, kw_only=True)
class LogLines:
    """Log lines of an episode ordered by time."""

    names: tuple[str, ...]
    """Candidate services, sorted."""
    times_ns: Ints
    services: Ints
    """Index into `names`."""
    messages: list[str]


def read_log_lines(episode: EpisodeView, start_ns: int, end_ns: int) -> LogLines:
    """Read the lines of candidates in `[start_ns, end_ns)`."""
    table = read_table(episode, "logs", ("time", "service", "message"))
    return log_lines(table, episode.services, start_ns, end_ns)


def log_lines(table: pa.Table, services: tuple[str, ...], start_ns: int, end_ns: int) -> LogLines:
    """Select and sort lines of a logs table."""
    names = tuple(sorted(services))
    times = table["time"].cast("int64").to_numpy()
    owner = pc.index_in(table["service"].cast("string"), value_set=pa.array(names, pa.string()))  # type: ignore[attr-defined]
    code = owner.fill_null(-1).to_numpy().astype(np.int64)
    chosen = np.flatnonzero((times >= start_ns) & (times < end_ns) & (code >= 0))
    # Lines with the same time keep their order in the table, per service.
    chosen = chosen[np.lexsort([chosen, code[chosen], times[chosen]])]
    return LogLines(
        names=names,
        times_ns=times[chosen],
        services=code[chosen],
        messages=table["message"].take(chosen).to_pylist(),
    )


@dataclass(frozen=True, kw_only=True)
class LogScores:
    """Anomaly score per bin."""

    system: Matrix
    """[bins] over all services together."""
    by_service: dict[str, Matrix]
    """[bins] per service that wrote lines."""
    unexpected_lines: tuple[tuple[str, str, int], ...]
    """(service, template, count) of unexpected lines after the healthy part, most frequent first."""


def score_logs(
    lines: LogLines, *, healthy_end_ns: int, start_ns: int, step_ns: int, bins: int, weight: float = 0.5
) -> LogScores:
    """Learn from lines before `healthy_end_ns`, and score bins of `step_ns` that begin at `start_ns`.

    Each service has its own sequence model.
    """
    drain = Drain()
    template_ids, numbers = drain.add_all(lines.messages)
    templates = np.asarray(template_ids, dtype=np.int64)
    healthy = lines.times_ns < healthy_end_ns
    missed = np.zeros(len(templates), dtype=bool)
    for service in np.unique(lines.services):
        rows = np.flatnonzero(lines.services == service)
        model = NextTemplate().fit(templates[rows[healthy[rows]]].tolist())
        missed[rows] = model.misses(templates[rows].tolist(), after=())
    anomalous, any_numbers = parameter_anomalies(templates, lines.services, lines.times_ns, numbers, healthy)
    if not any_numbers:
        anomalous = missed
    bin_of_line = (lines.times_ns - start_ns) // step_ns

    def share(rows: npt.NDArray[np.bool_]) -> Matrix:
        rows = rows & (bin_of_line >= 0) & (bin_of_line < bins)
        return combined_score(
            binned_share(bin_of_line[rows], missed[rows], bins),
            binned_share(bin_of_line[rows], anomalous[rows], bins),
            weight,
        )

    unexpected = Counter(
        zip(lines.services[missed & ~healthy].tolist(), templates[missed & ~healthy].tolist(), strict=True)
    )
    return LogScores(
        system=share(np.ones(len(templates), dtype=bool)),
        by_service={lines.names[code]: share(lines.services == code) for code in np.unique(lines.services)},
        unexpected_lines=tuple(
            (lines.names[service], drain.templates[template].text, count)
            for (service, template), count in sorted(unexpected.items(), key=lambda item: (-item[1], item[0]))
        ),
    )


def unexpected_line_evidence(scores: LogScores, reported: int = 5) -> list[Evidence]:
    """Return the most frequent unexpected lines as evidence."""
    return [
        Evidence(service=service, subject=template, score=float(count), detail="unexpected log lines")
        for service, template, count in scores.unexpected_lines[:reported]
    ]


Scope = Literal["system", "own"]
MIN_CANDIDATES = 5
MIN_LINES = 5
LONG_BIN = 4


def candidate_series(z: Matrix, *, sigmas: float = 3.0, min_candidates: int = MIN_CANDIDATES) -> np.ndarray:
    """Return the columns that deviate at some time; if there are too few, all columns that vary."""
    deviates = np.abs(z).max(axis=0, initial=0.0) > sigmas
    return deviates if deviates.sum() >= min_candidates else z.std(axis=0) > 0


def measure_association(
    series: Matrix,
    score: Matrix,
    *,
    replicates: int,
    noise: float,
    neighbours: int,
    rng: np.random.Generator,
    lag: int = 0,
) -> Matrix:
    """Return the mean mutual information of noisy copies of each series and of the anomaly score.

    Parameters
    ----------
    series
        [n, d] columns to compare.
    score
        [n] one score for all series, or [n, d] one per series.
    noise
        Standard deviation of the noise, as a multiple of the series' standard deviation.
    lag
        Largest shift in samples, in both directions; the shift with the most information counts.
    """
    samples, count = series.shape
    target = np.broadcast_to(score[:, None] if score.ndim == 1 else score, series.shape)
    shape = (replicates, samples, count)
    noisy = series + rng.standard_normal(shape) * (noise * series.std(axis=0))
    noisy_target = target + rng.standard_normal(shape) * (noise * target.std(axis=0))
    best = np.zeros(count)
    for shift in range(-lag, lag + 1):
        series_rows = slice(max(0, shift), samples + min(0, shift))
        target_rows = slice(max(0, -shift), samples + min(0, -shift))
        pairs = [
            block[:, window].transpose(0, 2, 1).reshape(replicates * count, -1)
            for block, window in ((noisy, series_rows), (noisy_target, target_rows))
        ]
        information = knn_information(pairs[0], pairs[1], neighbours=neighbours)
        best = np.maximum(best, information.reshape(replicates, count).mean(axis=0))
    return best


@localizer(
    "rmlad",
    title="RMLAD",
    paper="Wang, Zhao, Chen, Li, Zhang, Sui, ICWS 2020",
    kind="named",
    tables=("metrics", "logs"),
    requires=("metrics", "logs"),
    stochastic=True,
    reconstruction=True,
    open_settings={
        "scope": ("system", "own"),
        "half_window": (20, 10, 40),
        "neighbours": (3, 2, 5),
        "noise": (0.1, 0.05, 0.2),
        "lag": (0, 2),
    },
    complexity="O(L·log L + S·T·A), A augmented copies",
    departures=(
        "Counts of successive templates replace DeepLog's network, because there are few lines.",
        "Choices that the public text leaves open: replicates are averaged, the noise of both series is a tenth of "
        "their standard deviation, and candidates deviate by 3 sigma.",
        "Five replicates instead of 20.",
        "Gaps of up to two steps repeat the last value; a series that stopped counts as a deviation of ten sigma.",
    ),
    speed="fast",
)
class RMLAD(TrainingFreeBaseline):
    """Rank services by the mutual information of their metrics and the log anomaly score.

    The method abstains if the score is constant.

    Parameters
    ----------
    scope
        `system`: compare every series with the score of all logs; `own`: with the score of its service's logs.
    replicates, noise, neighbours, lag
        See `measure_association`.
    half_window
        Number of bins on each side of the alarm.

    References
    ----------
    Wang et al., Root-cause metric location for microservice systems via log anomaly detection, ICWS 2020.
    """

    def __init__(
        self,
        *,
        scope: Scope = "system",
        replicates: int = 5,
        noise: float = 0.1,
        neighbours: int = 3,
        lag: int = 0,
        half_window: int = 20,
        seed: int = 0,
    ) -> None:
        self.scope = scope
        self.replicates = replicates
        self.noise = noise
        self.neighbours = neighbours
        self.lag = lag
        self.half_window = half_window
        self.seed = seed

    def localize(self, episode: EpisodeView, alarm_ns: int) -> Ranking:
        start_ns, reference_end_ns = episode.reference
        step_s = episode.context.resolution_s
        last_ns = alarm_ns + round((self.half_window + 1) * LONG_BIN * step_s * SECOND_NS)
        lines = read_log_lines(episode, start_ns, last_ns)
        bins = max(1, round((reference_end_ns - start_ns) / (step_s * SECOND_NS)))
        if (lines.times_ns < reference_end_ns).sum() < MIN_LINES * bins:
            step_s *= LONG_BIN
        windows = localization_windows(episode, alarm_ns, before=self.half_window, step_s=step_s)
        rows = slice(0, 2 * self.half_window)
        starts = windows.times_ns[rows] - windows.step_ns
        if windows.empty or len(starts) <= self.neighbours:
            return Ranking.abstain()
        bin_number = (starts - starts[0]) // windows.step_ns
        logs = score_logs(
            lines,
            healthy_end_ns=min(alarm_ns, reference_end_ns),
            start_ns=int(starts[0]),
            step_ns=windows.step_ns,
            bins=int(bin_number[-1]) + 1,
        )
        z = measure_deviations(windows)[rows]
        target = self._select_target(logs, windows.services)[bin_number]
        columns = np.flatnonzero(candidate_series(z) & (target.std(axis=0) > 0))
        if len(columns) == 0:
            return Ranking.abstain()
        information = measure_association(
            z[:, columns],
            target[:, columns],
            replicates=self.replicates,
            noise=self.noise,
            neighbours=self.neighbours,
            rng=np.random.default_rng(self.seed),
            lag=self.lag,
        )
        # Break ties by rank correlation.
        information += 1e-9 * _rank_correlation(z[:, columns], target[:, columns])
        ranking = rank_by_series(
            information,
            tuple(windows.series[column] for column in columns),
            episode.services,
            detail="nats shared with the log anomaly score",
        )
        if ranking.abstains:
            return ranking
        reported = [item for item in unexpected_line_evidence(logs) if item.service in ranking.scores]
        return replace(ranking, evidence=(*ranking.evidence, *reported))

    def _select_target(self, logs: LogScores, services: list[str]) -> Matrix:
        """Return the log anomaly score [bins, series] that each series is compared with."""
        if self.scope == "system":
            return np.repeat(logs.system[:, None], len(services), axis=1)
        silent = np.zeros(len(logs.system))
        return np.stack([logs.by_service.get(service, silent) for service in services], axis=1)


def _rank_correlation(series: Matrix, target: Matrix) -> Matrix:
    a, b = rankdata(series, axis=0), rankdata(target, axis=0)
    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    scale = np.sqrt((a**2).sum(axis=0) * (b**2).sum(axis=0))
    return np.abs((a * b).sum(axis=0)) / np.where(scale > 0, scale, 1.0)
