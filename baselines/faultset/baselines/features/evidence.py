"""Evidence against services from metrics and log lines, as -log10 of the probability that it occurs by chance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy import stats

from faultset.baselines.features.log_lines import BAD_LEVELS, match_keywords
from faultset.baselines.features.object_states import Rollout
from faultset.baselines.features.role_streams import Ints
from faultset.baselines.features.windows import Windows, windows_since_reference
from faultset.baselines.stats.scaling import Matrix, deviations, distinct, mean_and_sd, varies, with_metric_floor
from faultset.datasets.log_masks import mask_column
from faultset.datasets.views import EpisodeView, read_table

LOCAL_ROLES = frozenset({"cpu", "throttling", "memory", "disk", "restarts", "state", "threads", "descriptors"})
"""Roles that change only in the faulty service; other roles also change in its callers."""
UPWARDS = frozenset({"latency"})
"""Roles for which only an increase is evidence."""
WEIGHTS = {"traffic": 0.25, "network": 0.5}
"""Weights of roles that change with the load."""
BLOCKS = 5
"""Minimum number of blocks in the reference, if it has enough samples."""
MAX_DEGREES_OF_FREEDOM = 4
"""Maximum degrees of freedom, because real metrics have heavy tails."""
STOPPED_SHARE = 0.8
"""Share of the series of a service that must stop to count as evidence."""
SILENCE = 4.0
"""Maximum strength of the evidence against a stopped service; scaled by the share of services that did not stop."""
_LN10 = float(np.log(10.0))


@dataclass(frozen=True, kw_only=True)
class ServiceEvidence:
    """One piece of evidence against a service."""

    service: str
    subject: str
    strength: float
    """-log10 of the probability that it occurs by chance, corrected for the number of comparisons."""
    local: bool
    """Whether it is evidence against the service itself, and cannot be a symptom of a called service."""
    detail: str


def metric_evidence(
    episode: EpisodeView, alarm_ns: int, rollouts: Mapping[str, Rollout] = MappingProxyType({})
) -> list[ServiceEvidence]:
    """Return the most surprising series of each service and role since an alarm, compared with the reference.

    Evidence against services whose series stopped is added. If more than two services have series of a role, the
    median over services is subtracted, so that a change of all services, such as more load, does not count.

    Parameters
    ----------
    rollouts
        Rollout of each service. Samples during a rollout are ignored, because they mix old and new pods.
    """
    windows = windows_since_reference(episode, alarm_ns)
    is_recent = windows.times_ns > alarm_ns
    if windows.empty or len(windows.reference) < 2 or not is_recent.any():
        return []
    owners = np.array(windows.services)
    windows = _remove_rollouts(windows, episode.window[0], owners, rollouts)
    roles = np.array([episode.catalogue.role_of(metric) for _, metric in windows.series])
    z, freedom, blocks = _compute_block_deviations(windows, is_recent)
    z = np.where(np.isin(roles, sorted(UPWARDS)), np.maximum(z, 0.0), np.abs(z))
    surprise = -(stats.t.logsf(z, freedom) + np.log(2.0)) / _LN10 - np.log10(blocks)
    is_gone = windows.absent[is_recent].mean(axis=0) > 0.5
    evidence = _weigh_stopped_series(owners, is_gone)
    # Ignore constant series, so that their number does not matter.
    is_usable = varies(np.vstack([windows.reference, windows.values])) & ~is_gone
    for role in np.unique(roles):
        best: dict[str, tuple[float, int]] = {}
        for service in np.unique(owners[roles == role]):
            columns = np.flatnonzero((owners == service) & (roles == role) & is_usable)
            if len(columns):
                column = int(columns[np.argmax(surprise[columns])])
                best[str(service)] = (float(surprise[column] - np.log10(len(columns))), column)
        usual = max(0.0, float(np.median([value for value, _ in best.values()]))) if len(best) > 2 else 0.0
        evidence += [
            ServiceEvidence(
                service=service,
                subject=windows.series[column][1],
                strength=(value - usual) * WEIGHTS.get(str(role), 1.0),
                local=role in LOCAL_ROLES,
                detail=f"{role}, {z[column]:.1f} sigmas from the reference",
            )
            for service, (value, column) in best.items()
            if value > usual
        ]
    return evidence


def _remove_rollouts(
    windows: Windows, start_ns: int, owners: npt.NDArray[np.str_], rollouts: Mapping[str, Rollout]
) -> Windows:
    """Remove the samples of services during their rollout and one step after it."""
    if not rollouts:
        return windows
    reference, values = windows.reference.copy(), windows.values.copy()
    healthy_ns = start_ns + windows.step_ns * np.arange(1, len(reference) + 1)
    for service, rollout in rollouts.items():
        for matrix, times_ns in ((reference, healthy_ns), (values, windows.times_ns)):
            rows = (times_ns > rollout.start_ns) & (times_ns <= rollout.end_ns + 2 * windows.step_ns)
            matrix[np.ix_(rows, owners == service)] = np.nan
    return replace(windows, reference=reference, values=values)


def _compute_block_deviations(windows: Windows, is_recent: npt.NDArray[np.bool_]) -> tuple[Matrix, int, int]:
    """Return the largest deviation of a block since the alarm, the degrees of freedom, and the number of blocks.

    A block has the length of the time since the alarm, but at most a fifth of the reference. Deviations are measured
    from the reference and from the level right after it. The smaller deviation counts, because the reference may be
    from a different day. If the two have different signs, the deviation is 0.
    """
    values = windows.values[is_recent]
    length = max(1, min(len(values), len(windows.reference) // BLOCKS))
    healthy, blocks = _compute_block_medians(windows.reference, length), _compute_block_medians(values, length)
    mean, sd = mean_and_sd(healthy, ddof=1)
    scale = with_metric_floor(sd, windows.series) * np.sqrt(1 + 1 / len(healthy))
    z = deviations(blocks, mean, scale)
    between = windows.values[~is_recent]
    if len(between):
        # The half next to the reference is healthy even if the alarm is late.
        level = np.median(np.where(np.isfinite(between), between, mean)[: math.ceil(len(between) / 2)], axis=0)
        shift = deviations(blocks, level, scale)
        z = np.where(np.sign(z) == np.sign(shift), np.sign(z) * np.minimum(np.abs(z), np.abs(shift)), 0.0)
    largest = np.take_along_axis(z, np.abs(z).argmax(axis=0)[None], axis=0)[0]
    return largest, max(1, min(MAX_DEGREES_OF_FREEDOM, len(healthy) - 1)), len(blocks)


def _compute_block_medians(rows: Matrix, length: int) -> Matrix:
    """Return the medians of consecutive blocks; the last block ends with the last row."""
    first = len(rows) % length if len(rows) > length else 0
    cut = rows[first : first + len(rows) // length * length].reshape(-1, length, rows.shape[1])
    measured = np.asarray(np.isfinite(cut).any(axis=1))
    middle = np.nanmedian(np.where(measured[:, None, :], cut, 0.0), axis=1)
    return np.where(measured, middle, np.nan)


def _weigh_stopped_series(owners: npt.NDArray[np.str_], is_gone: npt.NDArray[np.bool_]) -> list[ServiceEvidence]:
    """Return evidence against services whose series stopped; the more services stopped, the weaker it is."""
    services = np.unique(owners)
    silent = [str(name) for name in services if is_gone[owners == name].mean() >= STOPPED_SHARE]
    strength = SILENCE * (1 - len(silent) / len(services))
    return [
        ServiceEvidence(service=name, subject="metrics", strength=strength, local=True, detail="series stopped")
        for name in silent
        if strength > 0
    ]


MAX_EFFECTIVE_LINES = 20.0
"""Maximum effective number of lines, because lines with one cause occur together."""
MIN_EXPECTED = 5.0
QUIET_SHARE = 0.5
"""A service is quiet if it writes fewer lines than this share of its minimum in the reference."""
_MIN_INTERVALS = 3


def log_evidence(episode: EpisodeView, alarm_ns: int) -> list[ServiceEvidence]:
    """Return evidence from error lines and from missing lines since an alarm, relative to the reference.

    Error lines may be about a called service, so they are symptoms. Missing lines are evidence against the service
    itself, unless most services write fewer lines.
    """
    return [*_find_error_evidence(episode, alarm_ns), *_find_missing_line_evidence(episode, alarm_ns)]


def count_evidence(healthy: Matrix, recent: Matrix, healthy_s: float, recent_s: float) -> Matrix:
    """Return log10 of the likelihood ratio of two counts versus an equal rate; negative for a decrease.

    Examples
    --------
    >>> count_evidence(np.array([0.0, 9.0, 10.0]), np.array([6.0, 3.0, 0.0]), 300.0, 100.0).round(1).tolist()
    [3.6, 0.0, -1.2]
    """
    total = healthy + recent
    share = np.minimum(1.0, MAX_EFFECTIVE_LINES / np.maximum(total, 1.0))
    expected = total * recent_s / (healthy_s + recent_s)
    g = _compute_g_term(recent, expected) + _compute_g_term(healthy, total - expected)
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
    healthy, recent, healthy_s, recent_s = _count_rows(lines["time"], kind, len(kinds), episode, alarm_ns)
    strength = count_evidence(healthy, recent, healthy_s, recent_s)
    owners = kinds // len(texts.dictionary)
    has_owner = owners >= 0
    all_healthy, all_recent = (
        np.bincount(owners[has_owner], flags[has_owner], len(names)).astype(float) for flags in (healthy, recent)
    )
    strength_of_all = count_evidence(all_healthy, all_recent, healthy_s, recent_s)
    evidence = []
    for code in np.unique(owner[owner >= 0]):
        rows = np.flatnonzero(owners == code)
        row = int(rows[np.argmax(strength[rows])])
        value = max(float(strength_of_all[code]), float(strength[row] - np.log10(len(rows))))
        # Many new kinds of lines are stronger evidence than one frequent kind.
        value *= 1 + np.log10(max(1, int(((healthy == 0) & (recent > 0))[rows].sum())))
        if value > 0:
            text = texts.dictionary[int(kinds[row] % len(texts.dictionary))].as_py()
            evidence.append(
                ServiceEvidence(
                    service=names[code],
                    subject=str(text),
                    strength=value,
                    local=False,
                    detail=f"{healthy[row]:.0f} such lines in the reference, {recent[row]:.0f} since the alarm",
                )
            )
    return evidence


def _find_missing_line_evidence(episode: EpisodeView, alarm_ns: int) -> list[ServiceEvidence]:
    table = read_table(episode, "logs", ("time", "service"))
    if not len(table):
        return []
    names = sorted(episode.services)
    healthy, recent, healthy_s, recent_s = _count_rows(
        table["time"], _encode_services(table["service"], names), len(names), episode, alarm_ns
    )
    expected = healthy * recent_s / healthy_s
    is_frequent = expected >= MIN_EXPECTED
    is_quiet = is_frequent & (recent < QUIET_SHARE * _find_minimum_counts(table, names, episode, recent_s))
    if is_quiet.sum() * 2 > is_frequent.sum():
        return []
    strength = -count_evidence(healthy, recent, healthy_s, recent_s)
    return [
        ServiceEvidence(
            service=names[code],
            subject="log lines",
            strength=float(strength[code]),
            local=True,
            detail=f"{recent[code]:.0f} lines since the alarm where {expected[code]:.0f} were expected",
        )
        for code in np.flatnonzero(is_quiet)
    ]


def _select_error_lines(episode: EpisodeView) -> pa.Table:
    """Return lines at level error or fatal, and lines with a keyword that have no level or level warning."""
    table = read_table(episode, "logs", ("time", "service", "level", "message"))
    level = table["level"].cast(pa.string())
    is_bad = pc.is_in(level, value_set=pa.array(BAD_LEVELS, pa.string()))  # type: ignore[attr-defined]
    is_vague = pc.or_(pc.is_null(level), pc.equal(level, "warning")).fill_null(True)  # type: ignore[attr-defined]
    return table.filter(pc.or_(is_bad, pc.and_(is_vague, match_keywords(episode))))  # type: ignore[attr-defined]


def _find_minimum_counts(table: pa.Table, names: list[str], episode: EpisodeView, recent_s: float) -> Matrix:
    """Return the minimum number of lines that each service wrote in an interval of the reference.

    Intervals have the length of the time since the alarm. Return 0 if fewer than three of them fit, because quiet
    periods may then be normal.
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
    """Count rows of each kind in the reference and since the alarm; also return the seconds in each."""
    times = column.cast(pa.int64()).to_numpy()
    start_ns, end_ns = episode.reference
    end_ns = min(end_ns, alarm_ns)
    healthy = (times >= start_ns) & (times < end_ns) & (kind >= 0)
    recent = (times >= alarm_ns) & (kind >= 0)
    seconds = (max(1, end_ns - start_ns) / 1e9, max(1, episode.window[1] - alarm_ns) / 1e9)
    counts = [np.bincount(kind[flags], minlength=kinds).astype(float) for flags in (healthy, recent)]
    return counts[0], counts[1], *seconds


def _encode_services(column: pa.ChunkedArray, names: list[str]) -> Ints:
    index = pc.index_in(column.cast(pa.string()), value_set=pa.array(names, pa.string()))  # type: ignore[attr-defined]
    return index.fill_null(-1).to_numpy().astype(np.int64)
