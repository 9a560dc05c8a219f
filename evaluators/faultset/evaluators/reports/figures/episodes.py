"""One episode drawn: what clients and services showed, its phases, and what each method answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from faultset.core.times import SECOND_NS
from faultset.evaluators.leaderboards import number_formats
from faultset.evaluators.leaderboards.records import Leaderboard, is_headline
from faultset.evaluators.leaderboards.scores import EpisodeScores, Setting
from faultset.evaluators.reports.episode_difficulty import EpisodeDifficulty, episode_title
from faultset.evaluators.reports.figures.telemetry import Panel, panels, position, ticks
from faultset.evaluators.reports.method_cards import top_methods
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.alarms import alarms_of, timed_alarms
from faultset.evaluators.scoring.detection import CORRECT, alarm_facts
from faultset.evaluators.scoring.diagnosis import named_pair
from faultset.evaluators.scoring.localization import RANK
from faultset.evaluators.scoring.metrics import ScoredCase

_EVIDENCE_SHOWN = 110


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
    evidence: str


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a localizer named under one protocol."""

    rank: str
    """Expected rank of the first cause; a word where there is no answer."""
    right: bool
    services: tuple[tuple[str, bool], ...]
    """First three, and whether each is a cause."""
    remark: str


@dataclass(frozen=True, kw_only=True)
class RankLine:
    """One localizer's answers when given the alarm and when given the onset, with its evidence."""

    name: str
    kind: str
    detected: Answer | None
    oracle: Answer | None
    evidence: str


@dataclass(frozen=True, kw_only=True)
class DiagnosisLine:
    """Levels and types that a diagnoser named, and which of them are right."""

    name: str
    kind: str
    answers: tuple[tuple[str, bool, str, bool], ...]
    """(level, right, type, right) when given the alarm, then when given the onset."""


def alarm_lines(
    truth: Truth, scores: EpisodeScores, board: Leaderboard
) -> tuple[tuple[AlarmLine, ...], tuple[AlarmLine, ...]]:
    """List what detectors answered; those that stand first in the last headline table are shown, others folded."""
    cases = scores.cases.get(Setting("detection", "detected"), {})
    lines = {
        name: _alarm_line(name, scores.kinds[name], cases[name][truth.episode].rows, truth)
        for name in _by_place(board, "detection", cases)
        if truth.episode in cases[name]
    }
    shown, folded = top_methods(list(lines), scores.kinds, methods=8)
    return tuple(lines[name] for name in shown), tuple(lines[name] for name in folded)


def _by_place(board: Leaderboard, task: str, names: Mapping[str, object]) -> list[str]:
    """Order methods as the last headline table of a task does; the others follow by name."""
    rank: dict[str, int] = {}
    for table in board.tables:
        if table.task == task and table.verdict == "manifest":
            rank |= {entry.baseline: i for i, entry in enumerate(table.entries)}
    return sorted(names, key=lambda name: (rank.get(name, len(rank)), name))


def _alarm_line(name: str, kind: str, rows: tuple[ResultRow, ...], truth: Truth) -> AlarmLine:
    # flags of several seeds cannot be drawn on one line: the first speaks for them
    row, case = rows[0], ScoredCase(rows=rows[:1])
    facts = alarm_facts(case)
    if row.status != "ok":
        answer = row.status
    elif truth.faulty:
        answer = (
            f"{facts.delay_s:.1f} s" if facts.detected == 1.0 else ("too early" if facts.raised_alarm else "missed")
        )
    else:
        answer = "false alarm" if facts.raised_alarm else "no alarm"
    zero = truth.onset_ns or truth.view_start_ns
    raised = alarms_of(row) if row.status == "ok" else []
    return AlarmLine(
        name=name,
        kind=kind,
        flags=_flag_runs(row.answer, truth),
        alarms=tuple(
            (
                position(start, truth),
                truth.onset_ns is not None and start >= truth.onset_ns,
                f"alarm at {(start - zero) / SECOND_NS:+.1f} s",
            )
            for start, _ in raised
        ),
        answer=answer,
        right=case.value(CORRECT) == 1.0,
        evidence=_evidence(row),
    )


def _flag_runs(answer: Mapping[str, object], truth: Truth) -> tuple[tuple[float, float], ...]:
    times, flags = answer.get("times_ns"), answer.get("flags")
    if not isinstance(times, list) or not isinstance(flags, str) or not times:
        return ()
    runs = timed_alarms(times, [flag == "1" for flag in flags], gap_ns=0)
    return tuple((position(a, truth), round(position(b, truth) - position(a, truth), 2)) for a, b in runs)


def rank_lines(truth: Truth, scores: EpisodeScores) -> tuple[tuple[RankLine, ...], tuple[RankLine, ...]]:
    """Localizers that rank the cause best come first."""
    if not truth.causes:
        return (), ()
    lines: dict[str, tuple[float, RankLine]] = {}
    scored = {protocol: scores.scored(Setting("localization", protocol)) for protocol in ("detected", "oracle")}
    for name in scores.ordered({name for cases in scored.values() for name in cases}):
        answers: dict[str, Answer | None] = {}
        ranks, evidence = [], ""
        for protocol, cases in scored.items():
            case = cases.get(name, {}).get(truth.episode)
            answers[protocol] = None if case is None else _answer(case.rows, case.value(RANK), truth)
            if case is not None:
                ranks.append(case.value(RANK))
                evidence = _evidence(case.rows[0]) or evidence
        if ranks:
            line = RankLine(name=name, kind=scores.kinds[name], evidence=evidence, **answers)
            lines[name] = (sum(ranks) / len(ranks), line)
    order = sorted(lines, key=lambda name: (lines[name][0], name))
    shown, folded = top_methods(order, scores.kinds, methods=8)
    return tuple(lines[name][1] for name in shown), tuple(lines[name][1] for name in folded)


def _answer(rows: Sequence[ResultRow], rank: float, truth: Truth) -> Answer:
    row = rows[0]
    causes = {name for names in truth.causes for name in names}
    failed = {"no_alarm": "no alarm"}.get(row.status, row.status) if row.status != "ok" else ""
    remarks = []
    if row.ranking:
        top = max(row.ranking.values())
        tied = sum(value == top for value in row.ranking.values())
        remarks += [f"{tied} tied"] if tied > 1 else []
    if row.alarm_given_early:
        remarks.append("alarm before the onset")
    if len(rows) > 1:
        remarks.append(f"1 of {len(rows)} seeds")
    ordered = sorted(row.ranking, key=lambda name: (-row.ranking[name], name))
    return Answer(
        rank=failed or ("none" if not row.ranking else number_formats.short(rank)),
        right=not failed and rank < 1.01,
        services=tuple((name, name in causes) for name in ordered[:3]),
        remark=", ".join(remarks),
    )


def diagnosis_lines(truth: Truth, scores: EpisodeScores) -> tuple[DiagnosisLine, ...]:
    """List what diagnosers named, given the alarm and given the onset."""
    scored = [scores.scored(Setting("rca", protocol)) for protocol in ("detected", "oracle")]
    names = scores.ordered({name for cases in scored for name in cases if truth.episode in cases[name]})
    lines = []
    for name in names:
        answers = []
        for cases in scored:
            case = cases.get(name, {}).get(truth.episode)
            level, kind = (None, None) if case is None else named_pair(case.rows[0])
            answers.append(
                (
                    level or number_formats.NONE,
                    level in {right for right, _ in truth.diagnoses},
                    kind or number_formats.NONE,
                    kind in {right for _, right in truth.diagnoses},
                )
            )
        lines.append(DiagnosisLine(name=name, kind=scores.kinds[name], answers=tuple(answers)))
    return tuple(lines)


def _evidence(row: ResultRow) -> str:
    """First item of evidence in one line."""
    items = row.answer.get("evidence") or ()
    if not items:
        return ""
    first = items[0]
    subject = " ".join(part for part in (first["service"], first["subject"]) if part)
    text = f"{subject}: {first['score']:.3g}" + (f", {first['detail']}" if first["detail"] else "")
    return text if len(text) <= _EVIDENCE_SHOWN else text[: _EVIDENCE_SHOWN - 1] + "…"


EPISODES_SHOWN = 12
_LEAST_HEALTHY = 2
"""No-fault episodes that are drawn in any case."""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """All about one episode."""

    episode: str
    title: str
    solved: str
    reference: float
    onset: float | None
    ticks: tuple[tuple[float, str], ...]
    panels: tuple[Panel, ...]
    alarms: tuple[tuple[AlarmLine, ...], tuple[AlarmLine, ...]]
    """Shown and folded."""
    ranks: tuple[tuple[RankLine, ...], tuple[RankLine, ...]]
    diagnoses: tuple[DiagnosisLine, ...]
    facts: tuple[tuple[str, str], ...]


def drawings(
    board: Leaderboard, scores: EpisodeScores, order: Sequence[EpisodeDifficulty], dataset: Path | None
) -> tuple[Drawing, ...]:
    """Draw at most `EPISODES_SHOWN` episodes, the least solved first."""
    by_episode = {one.episode: one for one in order}
    return tuple(
        _draw(scores.truths[episode], board, scores, by_episode.get(episode), dataset)
        for episode in chosen(scores, order)
    )


def chosen(scores: EpisodeScores, order: Sequence[EpisodeDifficulty]) -> list[str]:
    """Pick episodes: one for each fault while there are several, the least solved first, and some without a fault."""
    healthy_shown = max(_LEAST_HEALTHY, EPISODES_SHOWN - len(order))
    healthy = sorted(
        (e for e, truth in scores.truths.items() if not truth.faulty),
        key=lambda e: (-sum(_raised_alarm(scores, e)), e),
    )[:healthy_shown]
    faulty_shown = EPISODES_SHOWN - len(healthy)
    picked: list[str] = []
    for repeat in (False, True):
        for one in order:
            seen = {scores.truths[e].fault for e in picked}
            wanted = repeat or scores.truths[one.episode].fault not in seen
            if wanted and one.episode not in picked and len(picked) < faulty_shown:
                picked.append(one.episode)
    rank = {one.episode: i for i, one in enumerate(order)}
    return sorted(picked, key=lambda e: rank[e]) + healthy


def _raised_alarm(scores: EpisodeScores, episode: str) -> list[float]:
    """Return for each detector the share of seeds that raised an alarm in an episode."""
    detectors = scores.cases.get(Setting("detection", "detected"), {})
    return [alarm_facts(cases[episode]).raised_alarm for cases in detectors.values() if episode in cases]


def _draw(
    truth: Truth, board: Leaderboard, scores: EpisodeScores, hard: EpisodeDifficulty | None, dataset: Path | None
) -> Drawing:
    about = [("episode", truth.episode), ("application", truth.app), ("verdict", truth.verdict)]
    if truth.faulty:
        causes = ", ".join(" or ".join(names) for names in truth.causes)
        about += [("root cause", causes), ("level", truth.system_level or ""), ("type", truth.fault_type or "")]
    if hard is not None and hard.difficulty:
        about.append(("difficulty", hard.difficulty))
    return Drawing(
        episode=truth.episode,
        title=episode_title(truth),
        solved=_solved(truth, scores, hard),
        reference=position(truth.reference_end_ns, truth),
        onset=None if truth.onset_ns is None else position(truth.onset_ns, truth),
        ticks=ticks(truth),
        panels=panels(truth, dataset),
        alarms=alarm_lines(truth, scores, board),
        ranks=rank_lines(truth, scores),
        diagnoses=diagnosis_lines(truth, scores),
        facts=tuple((name, value) for name, value in about if value),
    )


def _solved(truth: Truth, scores: EpisodeScores, hard: EpisodeDifficulty | None) -> str:
    if hard is None:
        quiet = [raised < 0.5 for raised in _raised_alarm(scores, truth.episode)]
        return f"{sum(quiet)} of {len(quiet)} detectors raise no alarm" if quiet else ""
    words = ("detect it", "locate it given the alarm", "given the onset")
    parts = [
        f"{task.right} of {task.run} {word}"
        for task, word in zip(hard.tasks[:3], words, strict=True)
        if task is not None and task.run
    ]
    return ", ".join(parts) + ("" if is_headline(truth) else f" · {truth.verdict}")
