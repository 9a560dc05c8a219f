"""Evidence from log lines as decimal logarithms of likelihood ratios."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from faultset.baselines.api.tables import read_table
from faultset.baselines.evidence.metric_evidence import ServiceEvidence
from faultset.baselines.features.role_streams import Ints
from faultset.baselines.logs.templates import BAD_LEVELS, match_keywords
from faultset.baselines.stats.scaling import Matrix, distinct
from faultset.datasets.log_masks import mask_column

if TYPE_CHECKING:
    from faultset.datasets.views import EpisodeView

MAX_EFFECTIVE_LINES = 20.0
"""Maximum effective number of lines, because lines with one cause occur together."""
MIN_EXPECTED = 5.0
QUIET_SHARE = 0.5
"""A service is quiet if it writes fewer lines than this share of its minimum in the reference."""
_MIN_INTERVALS = 3
_LN10 = float(np.log(10.0))


def log_evidence(episode: EpisodeView, alarm_ns: int) -> list[ServiceEvidence]:
    """Return evidence from error lines and from missing lines since an alarm, relative to the reference.

    Error lines may be about a called service, so they are symptoms. Missing lines are evidence against the service
    itself, unless most services write fewer lines.
    """
    return [*_find_error_evidence(episode, alarm_ns), *_find_missing_line_evidence(episode, alarm_ns)]


def count_evidence(before: Matrix, recent: Matrix, before_s: float, recent_s: float) -> Matrix:
    """Return log10 of the likelihood ratio of two counts versus an equal rate; negative for a decrease.

    Examples
    --------
    >>> count_evidence(np.array([0.0, 9.0, 10.0]), np.array([6.0, 3.0, 0.0]), 300.0, 100.0).round(1).tolist()
    [3.6, 0.0, -1.2]
    """
    total = before + recent
    share = np.minimum(1.0, MAX_EFFECTIVE_LINES / np.maximum(total, 1.0))
    expected = total * recent_s / (before_s + recent_s)
    g = _compute_g_term(recent, expected) + _compute_g_term(before, total - expected)
    return np.sign(recent - expected) * share * g / _LN10


def _compute_g_term(count: Matrix, expected: Matrix) -> Matrix:
    ratio = np.maximum(count, 1e-300) / np.maximum(expected, 1e-300)
    return count * np.log(ratio, where=count > 0, out=np.zeros(len(count)))


def _find_error_evidence(episode: EpisodeView, alarm_ns: int) -> list[ServiceEvidence]:
    lines = episode.once("error lines", lambda: _select_error_lines(episode))
    if not len(lines):
        return []
    names = sorted(episode.services)
    owner = _encode_services(lines["service"], names)
    texts = mask_column(lines["message"]).combine_chunks().dictionary_encode()
    kinds, _, kind = distinct(owner * len(texts.dictionary) + texts.indices.to_numpy())
    before, recent, before_s, recent_s = _count_rows(lines["time"], kind, len(kinds), episode, alarm_ns)
    strength = count_evidence(before, recent, before_s, recent_s)
    owners = kinds // len(texts.dictionary)
    has_owner = owners >= 0
    all_before, all_recent = (
        np.bincount(owners[has_owner], flags[has_owner], len(names)).astype(float) for flags in (before, recent)
    )
    strength_of_all = count_evidence(all_before, all_recent, before_s, recent_s)
    evidence = []
    for code in np.unique(owner[owner >= 0]):
        rows = np.flatnonzero(owners == code)
        row = int(rows[np.argmax(strength[rows])])
        value = max(float(strength_of_all[code]), float(strength[row] - np.log10(len(rows))))
        # Many new kinds of lines are stronger evidence than one frequent kind.
        value *= 1 + np.log10(max(1, int(((before == 0) & (recent > 0))[rows].sum())))
        if value > 0:
            text = texts.dictionary[int(kinds[row] % len(texts.dictionary))].as_py()
            evidence.append(
                ServiceEvidence(
                    service=names[code],
                    subject=str(text),
                    strength=value,
                    local=False,
                    detail=f"{before[row]:.0f} such lines in the reference, {recent[row]:.0f} since the alarm",
                )
            )
    return evidence


def _find_missing_line_evidence(episode: EpisodeView, alarm_ns: int) -> list[ServiceEvidence]:
    table = read_table(episode, "logs", ("time", "service"))
    if not len(table):
        return []
    names = sorted(episode.services)
    before, recent, before_s, recent_s = _count_rows(
        table["time"], _encode_services(table["service"], names), len(names), episode, alarm_ns
    )
    expected = before * recent_s / before_s
    frequent = expected >= MIN_EXPECTED
    quiet = frequent & (recent < QUIET_SHARE * _count_fewest(table, names, episode, recent_s))
    if quiet.sum() * 2 > frequent.sum():
        return []
    strength = -count_evidence(before, recent, before_s, recent_s)
    return [
        ServiceEvidence(
            service=names[code],
            subject="log lines",
            strength=float(strength[code]),
            local=True,
            detail=f"{recent[code]:.0f} lines since the alarm where {expected[code]:.0f} were expected",
        )
        for code in np.flatnonzero(quiet)
    ]


def _select_error_lines(episode: EpisodeView) -> pa.Table:
    """Return lines at level error or fatal, and lines with a keyword that have no level or level warning."""
    table = read_table(episode, "logs", ("time", "service", "level", "message"))
    level = table["level"].cast(pa.string())
    bad = pc.is_in(level, value_set=pa.array(BAD_LEVELS, pa.string()))  # type: ignore[attr-defined]
    vague = pc.or_(pc.is_null(level), pc.equal(level, "warning")).fill_null(True)  # type: ignore[attr-defined]
    return table.filter(pc.or_(bad, pc.and_(vague, match_keywords(episode))))  # type: ignore[attr-defined]


def _count_fewest(table: pa.Table, names: list[str], episode: EpisodeView, recent_s: float) -> Matrix:
    """Return the minimum number of lines that each service wrote in an interval of the reference.

    Intervals are as long as the time since the alarm. Return 0 if fewer than three of them fit, because quiet periods
    may then be normal.
    """
    start_ns, end_ns = episode.reference
    intervals = int((end_ns - start_ns) / 1e9 // recent_s)
    if intervals < _MIN_INTERVALS:
        return np.zeros(len(names))
    interval = (table["time"].cast(pa.int64()).to_numpy() - start_ns) // round(recent_s * 1e9)
    owner = _encode_services(table["service"], names)
    inside = (interval >= 0) & (interval < intervals) & (owner >= 0)
    counts = np.bincount(interval[inside] * len(names) + owner[inside], minlength=intervals * len(names))
    return counts.reshape(intervals, -1).min(axis=0).astype(float)


def _count_rows(
    column: pa.ChunkedArray, kind: Ints, kinds: int, episode: EpisodeView, alarm_ns: int
) -> tuple[Matrix, Matrix, float, float]:
    """Count rows of each kind in the reference and since the alarm; also return the seconds of both."""
    times = column.cast(pa.int64()).to_numpy()
    start_ns, end_ns = episode.reference
    end_ns = min(end_ns, alarm_ns)
    before = (times >= start_ns) & (times < end_ns) & (kind >= 0)
    recent = (times >= alarm_ns) & (kind >= 0)
    seconds = (max(1, end_ns - start_ns) / 1e9, max(1, episode.window[1] - alarm_ns) / 1e9)
    counted = [np.bincount(kind[flags], minlength=kinds).astype(float) for flags in (before, recent)]
    return counted[0], counted[1], *seconds


def _encode_services(column: pa.ChunkedArray, names: list[str]) -> Ints:
    index = pc.index_in(column.cast(pa.string()), value_set=pa.array(names, pa.string()))  # type: ignore[attr-defined]
    return index.fill_null(-1).to_numpy().astype(np.int64)
