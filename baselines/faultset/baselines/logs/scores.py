"""Anomaly scores of log lines per time bin, for the system and for each service."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from faultset.baselines.api.contract import Evidence
from faultset.baselines.api.tables import read_table
from faultset.baselines.logs.templates import Drain
from faultset.baselines.stats.scaling import Matrix, mean_and_sd

if TYPE_CHECKING:
    import pyarrow as pa

    from faultset.datasets.views import EpisodeView

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
    owner = pc.index_in(table["service"].cast("string"), value_set=_strings(names))  # type: ignore[attr-defined]
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


def _strings(names: tuple[str, ...]) -> pa.Array:
    import pyarrow as pa

    return pa.array(names, pa.string())


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
