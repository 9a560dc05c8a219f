"""Log lines of an episode as anomaly scores per bin, for the whole system and for each service."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from faultset.baselines.api.contract import Evidence
from faultset.baselines.api.tables import read_table
from faultset.baselines.logs.drain import Drain
from faultset.baselines.logs.sequences import (
    Ints,
    NextTemplate,
    binned_share,
    combined_score,
    parameter_anomalies,
)
from faultset.baselines.stats.scaling import Matrix

if TYPE_CHECKING:
    import pyarrow as pa

    from faultset.datasets.views import EpisodeView


@dataclass(frozen=True, kw_only=True)
class LogLines:
    """Lines of an episode in order of time."""

    names: tuple[str, ...]
    """Services that wrote lines, sorted."""
    times_ns: Ints
    services: Ints
    """Index into `names`."""
    messages: list[str]


def read_log_lines(episode: EpisodeView, start_ns: int, end_ns: int) -> LogLines:
    """Read the lines of `[start_ns, end_ns)` that belong to a candidate service."""
    table = read_table(episode, "logs", ("time", "service", "message"))
    return log_lines(table, episode.services, start_ns, end_ns)


def log_lines(table: pa.Table, services: tuple[str, ...], start_ns: int, end_ns: int) -> LogLines:
    """Select and sort lines of a logs table."""
    names = tuple(sorted(services))
    times = table["time"].cast("int64").to_numpy()
    owner = pc.index_in(table["service"].cast("string"), value_set=_strings(names))  # type: ignore[attr-defined]
    code = owner.fill_null(-1).to_numpy().astype(np.int64)
    chosen = np.flatnonzero((times >= start_ns) & (times < end_ns) & (code >= 0))
    # Lines of one instant keep the order in which the table holds them, service by service.
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
    own: dict[str, Matrix]
    """[bins] per service that wrote lines."""
    unexpected_lines: tuple[tuple[str, str, int], ...]
    """(service, template, count) of lines that were unexpected after the healthy part, most frequent
    first."""


def score_logs(
    lines: LogLines, *, healthy_end_ns: int, start_ns: int, step_ns: int, bins: int, weight: float = 0.5
) -> LogScores:
    """Learn from lines before `healthy_end_ns` and score bins of `step_ns` from `start_ns` on.

    The sequence of each service is learned and judged by itself; services are pooled within a bin.
    """
    drain = Drain()
    found, numbers = drain.add_all(lines.messages)
    templates = np.asarray(found, dtype=np.int64)
    healthy = lines.times_ns < healthy_end_ns
    missed = np.zeros(len(templates), dtype=bool)
    for service in np.unique(lines.services):
        rows = np.flatnonzero(lines.services == service)
        model = NextTemplate().fit(templates[rows[healthy[rows]]].tolist())
        missed[rows] = model.misses(templates[rows].tolist(), after=())
    anomalous, any_numbers = parameter_anomalies(templates, lines.services, lines.times_ns, numbers, healthy)
    if not any_numbers:
        anomalous = missed
    where = (lines.times_ns - start_ns) // step_ns

    def share(rows: npt.NDArray[np.bool_]) -> Matrix:
        rows = rows & (where >= 0) & (where < bins)
        return combined_score(
            binned_share(where[rows], missed[rows], bins), binned_share(where[rows], anomalous[rows], bins), weight
        )

    worst = Counter(zip(lines.services[missed & ~healthy].tolist(), templates[missed & ~healthy].tolist(), strict=True))
    return LogScores(
        system=share(np.ones(len(templates), dtype=bool)),
        own={lines.names[code]: share(lines.services == code) for code in np.unique(lines.services)},
        unexpected_lines=tuple(
            (lines.names[service], drain.templates[template].text, count)
            for (service, template), count in sorted(worst.items(), key=lambda item: (-item[1], item[0]))
        ),
    )


def unexpected_line_evidence(scores: LogScores, reported: int = 5) -> list[Evidence]:
    """Name the unexpected lines that came most often."""
    return [
        Evidence(service=service, subject=template, score=float(count), detail="unexpected log lines")
        for service, template, count in scores.unexpected_lines[:reported]
    ]
