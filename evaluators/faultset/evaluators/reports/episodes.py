"""Results by fault, episode and recording, as content of templates: heat maps, difficulties and timelines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from faultset.core.printable import count_text
from faultset.core.times import SECOND_NS, duration_text, elapsed_text
from faultset.datasets.format.recordings import subtract_intervals
from faultset.evaluators.leaderboards.records import HEADLINE, Leaderboard, is_headline
from faultset.evaluators.leaderboards.scores import EpisodeScores, Setting
from faultset.evaluators.leaderboards.texts import format_count
from faultset.evaluators.recordings.detector_runs import DetectorRun, RecordingFacts, ScoredIncident
from faultset.evaluators.reports.charts import Content, split_lines
from faultset.evaluators.results.truth import UNNOTICED
from faultset.evaluators.scoring.alarms import Range

_VERDICTS = (HEADLINE, "latent", "silent", UNNOTICED)
_TASKS = (
    (
        "detection", "Detection",
        "share of episodes with a true alarm; without a fault, share of episodes without any alarm",
    ),
    ("localization", "Localization", "AC@1"),
    ("rca", "Root cause", "system level and fault type both right"),
)  # fmt: skip
Values = Mapping[str, Mapping[str, float]]
"""Baseline -> episode -> score."""


def heat_maps(scores: EpisodeScores) -> list[Content]:
    """Return a heat map for each task and protocol, without methods that are ranked separately."""
    maps = []
    for task, title, meaning in _TASKS:
        for protocol, suffix in (("detected", ", given the alarm"), ("oracle", ", given the onset")):
            if Setting(task, protocol) in scores.cases:
                values = scores.compute_ranked_correctness(Setting(task, protocol))
                values = {name: by_episode for name, by_episode in values.items() if by_episode}
                full_title = title + (suffix if task != "detection" else "")
                maps.append({"title": full_title, "meaning": meaning, **_build_heat_map(scores, values)})
    return maps


def _build_heat_map(scores: EpisodeScores, values: Values) -> Content:
    """Return rows of (method, kind, cells) over faults; the first cell is the mean over headline-table episodes."""
    groups: dict[tuple[int, str, str], list[str]] = defaultdict(list)
    for episode in sorted({episode for episodes in values.values() for episode in episodes}):
        truth = scores.truths[episode]
        if truth.faulty:
            order = _VERDICTS.index(truth.verdict) if truth.verdict in _VERDICTS else 0
            groups[order, str(truth.fault), truth.verdict].append(episode)
        else:
            groups[9, truth.no_fault_kind or "plain", "no fault"].append(episode)
    columns = sorted(groups.items())
    headline = [e for (order, _, _), episodes in columns if order == 0 for e in episodes]
    means = {name: _compute_mean([by[e] for e in headline if e in by]) for name, by in values.items()}

    def line(name: str) -> tuple[str, str, list[Content]]:
        cells = [_build_heat_cell(values[name], headline, name, "all headline faults", decimals=2)]
        cells += [_build_heat_cell(values[name], episodes, name, label) for (_, label, _), episodes in columns]
        return name, scores.kinds[name], cells

    ranked = sorted(values, key=lambda name: (-means[name], name))
    return {
        "columns": [(label, verdict, len(episodes)) for (_, label, verdict), episodes in columns],
        **split_lines(ranked, scores.kinds, line, methods=12, controls=4),
    }


def _compute_mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _build_heat_cell(
    values: Mapping[str, float], episodes: Sequence[str], name: str, label: str, *, decimals: int = 1
) -> Content:
    scores = [values[e] for e in episodes if e in values]
    if not scores:
        return {"value": None, "text": "", "tip": f"{name} was not run on {label}"}
    mean = _compute_mean(scores)
    short = f"{mean:.1f}".removeprefix("0") if 0.05 <= mean < 0.95 else f"{mean:.0f}"
    tip = f"{name} on {label}: {format_count(sum(scores))} of {len(scores)}"
    return {"value": mean, "text": f"{mean:.2f}" if decimals == 2 else short, "tip": tip}


SOLVED_TASKS = (
    ("detection", "detected", "detected by"),
    ("localization", "detected", "located from the alarm by"),
    ("localization", "oracle", "located from the onset by"),
    ("rca", "oracle", "level and type named by"),
)
_RIGHT = 0.99
_MAX_NAMES = 4


def episode_difficulties(board: Leaderboard, scores: EpisodeScores) -> list[Content]:
    """Return all fault episodes with the methods that solved them.

    Headline episodes come first, then episodes that few methods solved. An episode is unsolved if no method detects it,
    or no method locates it under any protocol.
    """
    stratum_of = {e: stratum.name for stratum in board.strata for e in stratum.episodes}
    right = [scores.compute_ranked_correctness(Setting(task, protocol)) for task, protocol, _ in SOLVED_TASKS]
    episodes = []
    for truth in scores.truths.values():
        if truth.faulty:
            tasks = [_find_solvers(values, truth.episode, scores) for values in right]
            run = [None if task is None or not task["run"] else task["right"] for task in tasks[:3]]
            located = [count for count in run[1:] if count is not None]
            shares = [task["share"] for task in tasks[:3] if task is not None and task["run"]]
            episodes.append(
                {
                    "episode": truth.episode,
                    "title": truth.title,
                    "app": truth.app,
                    "verdict": truth.verdict,
                    "headline": is_headline(truth),
                    "difficulty": stratum_of.get(truth.episode, ""),
                    "tasks": tasks,
                    "unsolved": run[0] == 0 or (bool(located) and not any(located)),
                    "ease": sum(shares) / len(shares) if shares else 1.0,
                }
            )
    return sorted(episodes, key=lambda episode: (not episode["headline"], episode["ease"], episode["episode"]))


def _find_solvers(by_name: Mapping[str, Mapping[str, float]], episode: str, scores: EpisodeScores) -> Content | None:
    """Return the methods that were right on an episode; controls are counted separately. None if none was run."""
    run = [name for name, values in by_name.items() if episode in values]
    if not run:
        return None
    methods = [name for name in run if not scores.is_control(name)]
    right = scores.sort_methods(name for name in methods if by_name[name][episode] > _RIGHT)
    rest = len(right) - _MAX_NAMES
    return {
        "right": len(right),
        "run": len(methods),
        "share": len(right) / len(methods) if methods else 0.0,
        "first_names": ", ".join(right[:_MAX_NAMES]) + (f" and {rest} more" if rest > 0 else ""),
        "controls": sum(by_name[name][episode] > _RIGHT for name in run if scores.is_control(name)),
    }


MAX_SHOWN = 8
"""Number of detectors that are shown for a recording; the others are collapsed."""
EXPLORER_FILE = "explorer.html"
"""Explorer page that timeline marks link to; `faultset dataset explore` writes it next to the report."""
_MIN_WIDTH = 0.25
"""Smallest width of a mark in percent."""
_TICKS = 6

_MEANINGS = {
    "true": "true alarm",
    "repeated": "further alarm in a detected incident",
    "other": "alarm in an incident that clients did not notice",
    "decoy": "alarm at a decoy",
    "false": "false alarm",
    "void": "alarm that does not count",
}


def build_timelines(runs: Mapping[str, Sequence[DetectorRun]], order: Sequence[str]) -> list[dict[str, Any]]:
    """Return the content of one timeline per recording.

    `runs`: detector -> its runs; only the first seed is shown.
    `order`: detectors, the best first.
    """
    by_recording: dict[str, list[DetectorRun]] = {}
    for name in order:
        first_runs: dict[str, DetectorRun] = {}
        for run in runs[name]:
            first_runs.setdefault(run.facts.recording, run)
        for recording, run in first_runs.items():
            by_recording.setdefault(recording, []).append(run)
    return [_build_timeline(recording_runs) for _, recording_runs in sorted(by_recording.items())]


def _build_timeline(runs: Sequence[DetectorRun]) -> dict[str, Any]:
    facts = runs[0].facts
    lanes = [_build_lane(run) for run in runs]
    scored = len(facts.scored_headline)
    unwatched = subtract_intervals([(facts.start_ns, facts.end_ns)], facts.watched)
    return {
        "id": facts.recording,
        "app": facts.app,
        "length": duration_text((facts.end_ns - facts.start_ns) / SECOND_NS),
        "incidents": f"{scored} of {count_text(len(facts.incidents), 'incident')} counted",
        "truth": [
            *(_build_mark(facts, "unwatched", piece, "not watched") for piece in unwatched),
            *(_build_mark(facts, "void", void, "void: does not count") for void in facts.voids),
            *(_build_mark(facts, "decoy", decoy, "decoy") for decoy in facts.decoys),
            *(
                _build_mark(
                    facts, "incident" if item in facts.scored_headline else "uncounted", _get_range(item), item.title
                )
                for item in facts.incidents
            ),
        ],
        "shown": lanes[:MAX_SHOWN],
        "folded": lanes[MAX_SHOWN:],
        "ticks": [
            (
                round(100 * number / _TICKS, 2),
                elapsed_text((facts.end_ns - facts.start_ns) * number / _TICKS / SECOND_NS),
            )
            for number in range(_TICKS + 1)
        ],
    }


def _build_lane(run: DetectorRun) -> dict[str, Any]:
    facts = run.facts
    detected = {alarm.incident for alarm in run.alarms if alarm.outcome == "true"}
    missed = [item for item in facts.scored_headline if item.incident not in detected]
    marks = [
        _build_mark(facts, alarm.outcome, (alarm.start_ns, alarm.end_ns), _MEANINGS[alarm.outcome])
        for alarm in run.alarms
    ]
    marks += [_build_mark(facts, "missed", _get_range(item), f"missed: {item.title}") for item in missed]
    row = run.rows[0]
    return {
        "name": row.baseline,
        "kind": row.kind,
        "marks": marks,
        "recall": f"{len(facts.scored_headline) - len(missed)}/{len(facts.scored_headline)}",
        "false": run.count("false"),
    }


def _get_range(item: ScoredIncident) -> Range:
    return item.start_ns, item.end_ns


def _build_mark(facts: RecordingFacts, kind: str, interval: Range, meaning: str) -> dict[str, Any]:
    """Return a mark with its position in percent, and its address in the explorer."""
    total = facts.end_ns - facts.start_ns
    start, end = (min(max(time_ns, facts.start_ns), facts.end_ns) for time_ns in interval)
    seconds = (start - facts.start_ns) / SECOND_NS
    return {
        "kind": kind,
        "left": round(100 * (start - facts.start_ns) / total, 3),
        "width": round(max(_MIN_WIDTH, 100 * (end - start) / total), 3),
        "title": f"{elapsed_text(seconds)} {meaning}",
        "href": f"{EXPLORER_FILE}#{quote(facts.recording)}@{seconds:.0f}",
    }
