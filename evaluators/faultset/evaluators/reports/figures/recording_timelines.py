"""Timelines of recordings: incidents, decoys and void stretches, and the alarms of each detector."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from faultset.core.printable import count_text
from faultset.core.times import SECOND_NS, duration_text, elapsed_text
from faultset.datasets.format.recordings import subtract_intervals
from faultset.evaluators.recordings.detector_runs import DetectorRun, RecordingFacts, ScoredIncident
from faultset.evaluators.scoring.alarms import Range

MAX_SHOWN = 8
"""Number of detectors that are shown for a recording; the others are collapsed."""
EXPLORER_FILE = "explorer.html"
"""File next to the report that marks link to: the page that `faultset dataset explore` writes."""
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

    Parameters
    ----------
    runs
        Detector -> its runs; only the first seed is shown.
    order
        Detectors, the best first.
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
    return {
        "id": facts.recording,
        "app": facts.app,
        "length": duration_text((facts.end_ns - facts.start_ns) / SECOND_NS),
        "incidents": f"{scored} of {count_text(len(facts.incidents), 'incident')} counted",
        "truth": [
            *(_build_mark(facts, "unwatched", piece, "not watched") for piece in _find_unwatched(facts)),
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


def _find_unwatched(facts: RecordingFacts) -> Iterable[Range]:
    return subtract_intervals([(facts.start_ns, facts.end_ns)], facts.watched)


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
