"""One episode drawn: what clients and services showed, its phases, and what each method answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from faultset.evaluators.leaderboards.hearing import alarms_of, heard
from faultset.evaluators.leaderboards.records import HEADLINE, Leaderboard
from faultset.evaluators.reports.facts import Facts
from faultset.evaluators.reports.telemetry import Panel, panels
from faultset.evaluators.rows import Truth

EPISODES_SHOWN = 6
_S = 1_000_000_000


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
        panels=panels(truth, dataset),
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
