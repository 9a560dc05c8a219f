"""One episode drawn: what clients and services showed, its phases, and what each method answered."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from faultset.datasets.errors import FaultsetError
from faultset.evaluators.leaderboards.detecting import alarms_of, heard
from faultset.evaluators.leaderboards.records import HEADLINE, Leaderboard
from faultset.evaluators.reports.facts import Facts
from faultset.evaluators.rows import Truth

if TYPE_CHECKING:
    import pandas as pd

    from faultset.datasets.views import EpisodeView

EPISODES_SHOWN = 6
_S = 1_000_000_000
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One line chart; paths in a box of 1000 by 100."""

    title: str
    detail: str
    paths: tuple[str, ...]
    low: str
    high: str


@dataclass(frozen=True, kw_only=True)
class AlarmLine:
    """Alarms of one detector on the episode's time axis, in percent of the view."""

    name: str
    kind: str
    flags: tuple[tuple[float, float], ...]
    """Runs of flags as (left, width)."""
    alarms: tuple[tuple[float, bool, str], ...]
    """(place, true alarm, text)."""
    answer: str
    right: bool


@dataclass(frozen=True, kw_only=True)
class RankLine:
    """First services that one localizer named, for each protocol."""

    name: str
    kind: str
    answers: tuple[tuple[str, tuple[tuple[str, bool], ...], str], ...]
    """(protocol, ((service, is a cause), ...), remark)."""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """All about one episode."""

    episode: str
    title: str
    subtitle: str
    reference: float
    onset: float | None
    ticks: tuple[tuple[float, str], ...]
    panels: tuple[Panel, ...]
    alarms: tuple[AlarmLine, ...]
    ranks: tuple[RankLine, ...]
    facts: tuple[tuple[str, str], ...]


def drawings(board: Leaderboard, facts: Facts, dataset: Path) -> tuple[Drawing, ...]:
    """Draw a few episodes: different faults, hard ones first, and one without a fault."""
    return tuple(_draw(facts.truths[episode], board, facts, dataset) for episode in chosen(board, facts))


def chosen(board: Leaderboard, facts: Facts) -> list[str]:
    """Pick at most `EPISODES_SHOWN` episodes: one for each fault while there are several, hard before trivial."""
    difficulty = {e: stratum.name for stratum in board.strata for e in stratum.episodes}
    order = {"hard": 0, "one modality": 1, "trivial": 2}
    faulty = [truth for truth in facts.truths.values() if truth.faulty]
    faulty.sort(
        key=lambda t: (t.verdict != HEADLINE, order.get(difficulty.get(t.episode, ""), 3), t.fault or "", t.episode)
    )
    picked: list[Truth] = []
    for repeat in (False, True):
        for truth in faulty:
            seen = {t.fault for t in picked}
            if truth not in picked and (repeat or truth.fault not in seen) and len(picked) < EPISODES_SHOWN - 1:
                picked.append(truth)
    healthy = [truth.episode for truth in facts.truths.values() if not truth.faulty]
    loud = sorted(
        healthy,
        key=lambda e: (-sum(by[e].yes for by in facts.detection.values() if e in by), e),
    )
    return [truth.episode for truth in picked] + loud[:1]


def _draw(truth: Truth, board: Leaderboard, facts: Facts, dataset: Path) -> Drawing:
    fault = truth.fault or f"no fault ({truth.no_fault_kind or 'plain'})"
    difficulty = next((s.name for s in board.strata if truth.episode in s.episodes), "")
    about = [("episode", truth.episode), ("application", truth.app), ("verdict", truth.verdict)]
    if truth.faulty:
        causes = ", ".join(" or ".join(names) for names in truth.causes)
        about += [("root cause", causes), ("level", truth.system_level or ""), ("type", truth.fault_type or "")]
    if difficulty:
        about.append(("difficulty", difficulty))
    return Drawing(
        episode=truth.episode,
        title=fault,
        subtitle=", ".join(truth.targets),
        reference=_place(truth.reference_end_ns, truth),
        onset=None if truth.onset_ns is None else _place(truth.onset_ns, truth),
        ticks=_ticks(truth),
        panels=_panels(truth, dataset),
        alarms=_alarm_lines(truth, facts),
        ranks=_rank_lines(truth, facts),
        facts=tuple((name, value) for name, value in about if value),
    )


def _place(time_ns: int, truth: Truth) -> float:
    share = (time_ns - truth.view_start_ns) / (truth.view_end_ns - truth.view_start_ns)
    return round(100 * min(1.0, max(0.0, share)), 2)


def _ticks(truth: Truth) -> tuple[tuple[float, str], ...]:
    """Five or so round seconds; counted from the onset where there is one."""
    zero = truth.onset_ns if truth.onset_ns is not None else truth.view_start_ns
    length_s = (truth.view_end_ns - truth.view_start_ns) / _S
    step = next((s for s in (5, 10, 15, 30, 60, 120, 300, 600) if length_s / s <= 6), 1800)
    first = int(np.ceil((truth.view_start_ns - zero) / _S / step)) * step
    marks = range(first, int((truth.view_end_ns - zero) / _S) + 1, step)
    signed = truth.onset_ns is not None
    return tuple(
        (_place(zero + mark * _S, truth), f"{mark:+d} s" if signed and mark else f"{mark} s") for mark in marks
    )


def _panels(truth: Truth, dataset: Path) -> tuple[Panel, ...]:
    from faultset.datasets.views import EpisodeView

    try:
        view = EpisodeView(dataset / "episodes" / truth.episode)
        return (*_client_panels(view, truth), *_service_panels(view, truth))
    except FaultsetError as error:
        _log.warning("episode %s cannot be drawn: %s", truth.episode, error)
        return ()


def _client_panels(view: EpisodeView, truth: Truth) -> list[Panel]:
    requests = view.requests()
    if requests.empty:
        return []
    seconds = (requests["scheduled"].astype("int64").to_numpy() - truth.view_start_ns) // _S
    length = int((truth.view_end_ns - truth.view_start_ns) // _S)
    inside = (seconds >= 0) & (seconds < length)
    failed = (requests["outcome"] != "ok").to_numpy()
    latency = requests["latency_ns"].to_numpy(dtype=float, na_value=np.nan) / 1e6
    slow, wrong = np.full(length, np.nan), np.full(length, np.nan)
    for second in np.unique(seconds[inside]):
        now = seconds == second
        wrong[second] = failed[now].mean()
        finished = latency[now & np.isfinite(latency)]
        if len(finished):
            slow[second] = np.quantile(finished, 0.95)
    return [
        _panel("clients", "95th percentile of latency, ms", slow),
        _panel("clients", "share of failed requests", wrong, low=0.0, high=max(0.05, _top(wrong))),
    ]


def _service_panels(view: EpisodeView, truth: Truth) -> list[Panel]:
    wide = view.wide(1.0)
    if wide.empty:
        return []
    z = _deviations(wide, truth)
    causes = {name for names in truth.causes for name in names} or set(truth.targets)
    own = [(service, metric) for service, metric in z.index if service in causes][:2]
    other = [(service, metric) for service, metric in z.index if service not in causes][: 3 - len(own)]
    panels = []
    for service, metric in own + other:
        label = f"{service} ({'root cause' if service in causes else 'loudest other'})" if truth.faulty else service
        values = wide[service, metric].to_numpy(dtype=float)
        panels.append(_panel(label, str(metric), values))
    return panels


def _deviations(wide: pd.DataFrame, truth: Truth) -> pd.Series:
    """Largest robust |z| after the reference, one for each series, largest first."""
    times = wide.index.as_unit("ns").asi8  # type: ignore[attr-defined]
    reference = wide[times < truth.reference_end_ns]
    since = truth.onset_ns if truth.onset_ns is not None else truth.reference_end_ns
    later = wide[times >= since]
    middle = reference.median()
    spread = (reference - middle).abs().median() * 1.4826
    floor = np.maximum(middle.abs() * 0.01, 1e-9)
    return ((later - middle).abs().max() / np.maximum(spread, floor)).dropna().sort_values(ascending=False)


def _panel(
    title: str, detail: str, values: npt.NDArray[np.float64], low: float | None = None, high: float | None = None
) -> Panel:
    known = values[np.isfinite(values)]
    bottom = low if low is not None else (float(known.min()) if len(known) else 0.0)
    top = high if high is not None else (float(known.max()) if len(known) else 1.0)
    if top <= bottom:
        top, bottom = bottom + max(abs(bottom) * 0.1, 1.0), bottom - max(abs(bottom) * 0.1, 1.0)
    return Panel(
        title=title,
        detail=detail,
        paths=_paths(values, bottom, top),
        low=_amount(bottom),
        high=_amount(top),
    )


def _paths(values: npt.NDArray[np.float64], low: float, high: float) -> tuple[str, ...]:
    """Lines between neighbouring samples; a gap in the data is a gap in the line."""
    count = max(1, len(values))
    pieces: list[list[str]] = [[]]
    for i, value in enumerate(values):
        if not np.isfinite(value):
            if pieces[-1]:
                pieces.append([])
            continue
        x, y = 1000 * (i + 0.5) / count, 100 * (1 - (value - low) / (high - low))
        pieces[-1].append(f"{x:.1f},{y:.1f}")
    # a sample on its own would be invisible as a line of no length
    return tuple(" ".join(p if len(p) > 1 else [p[0], p[0]]) for p in pieces if p)


def _top(values: npt.NDArray[np.float64]) -> float:
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else 0.0


def _amount(value: float) -> str:
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def _alarm_lines(truth: Truth, facts: Facts) -> tuple[AlarmLine, ...]:
    lines = []
    for name in facts.ordered(facts.detection):
        rows = facts.rows.get((name, truth.episode, "detected"))
        if not rows:
            continue
        # flags of several seeds cannot be drawn on one line: the first speaks for them
        row, one = rows[0], heard(rows[:1])
        if row.status != "ok":
            answer = row.status
        elif truth.faulty:
            answer = f"after {one.delay_s:.1f} s" if one.found else ("too early" if one.yes else "missed")
        else:
            answer = "false alarm" if one.yes else "silent"
        raised = alarms_of(row) if row.status == "ok" else []
        lines.append(
            AlarmLine(
                name=name,
                kind=facts.kinds[name],
                flags=_flag_runs(row.answer, truth),
                alarms=tuple(
                    (
                        _place(start, truth),
                        truth.onset_ns is not None and start >= truth.onset_ns,
                        f"alarm at {(start - (truth.onset_ns or truth.view_start_ns)) / _S:+.1f} s",
                    )
                    for start, _ in raised
                ),
                answer=answer,
                right=bool(one.found) if truth.faulty else not one.yes,
            )
        )
    return tuple(lines)


def _flag_runs(answer: object, truth: Truth) -> tuple[tuple[float, float], ...]:
    from faultset.evaluators.scoring.alarms import timed_alarms

    if not isinstance(answer, dict) or not answer.get("times_ns"):
        return ()
    flags = [flag == "1" for flag in answer["flags"]]
    runs = timed_alarms(answer["times_ns"], flags, gap_ns=0)
    return tuple((_place(a, truth), round(_place(b, truth) - _place(a, truth), 2)) for a, b in runs)


def _rank_lines(truth: Truth, facts: Facts) -> tuple[RankLine, ...]:
    if not truth.faulty:
        return ()
    causes = {name for names in truth.causes for name in names}
    names = {name for by in facts.localization.values() for name in by}
    lines = []
    for name in facts.ordered(names):
        answers = []
        for protocol in ("detected", "oracle"):
            rows = facts.rows.get((name, truth.episode, protocol))
            if rows:
                answers.append((protocol, _first_three(rows[0].ranking, causes), _remark(rows)))
        if answers:
            lines.append(RankLine(name=name, kind=facts.kinds[name], answers=tuple(answers)))
    return tuple(lines)


def _first_three(ranking: object, causes: set[str]) -> tuple[tuple[str, bool], ...]:
    assert isinstance(ranking, dict)
    ordered = sorted(ranking, key=lambda name: (-ranking[name], name))
    return tuple((name, name in causes) for name in ordered[:3])


def _remark(rows: Sequence) -> str:
    row = rows[0]
    if row.status == "no_alarm":
        return "not asked: no alarm"
    if row.status != "ok":
        return row.status
    if not row.ranking:
        return "named nobody"
    top = max(row.ranking.values())
    tied = sum(value == top for value in row.ranking.values())
    remarks = [f"{tied} tied in first place"] if tied > 1 else []
    if row.told_early:
        remarks.append("told before the onset")
    if len(rows) > 1:
        remarks.append(f"1 of {len(rows)} seeds")
    return ", ".join(remarks)
