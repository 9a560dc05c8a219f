"""Timelines of recordings: incidents, decoys and void stretches, and the alarms of each detector."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from faultset.core.printable import count_text
from faultset.core.times import SECOND_NS, duration_text, elapsed_text
from faultset.evaluators.recordings.tracks import RecordingFacts, ScoredIncident, Track, remove_ranges
from faultset.evaluators.scoring.alarms import Range

SHOWN = 8
"""Detectors of a recording that are not folded."""
EXPLORER_FILE = "explorer.html"
"""Page of the explorer that marks link to, next to the report."""
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


def build_timelines(tracks: Mapping[str, Sequence[Track]], order: Sequence[str]) -> list[dict[str, Any]]:
    """Return the content of one timeline per recording.

    Parameters
    ----------
    tracks
        Detector -> its tracks; of several seeds, the first is shown.
    order
        Detectors, the best first.
    """
    by_recording: dict[str, list[Track]] = {}
    for name in order:
        first: dict[str, Track] = {}
        for track in tracks[name]:
            first.setdefault(track.facts.recording, track)
        for recording, track in first.items():
            by_recording.setdefault(recording, []).append(track)
    return [_timeline(of_recording) for _, of_recording in sorted(by_recording.items())]


def _timeline(tracks: Sequence[Track]) -> dict[str, Any]:
    facts = tracks[0].facts
    lanes = [_lane(track) for track in tracks]
    scored = len(facts.counted)
    return {
        "id": facts.recording,
        "app": facts.app,
        "length": duration_text((facts.end_ns - facts.start_ns) / SECOND_NS),
        "incidents": f"{scored} of {count_text(len(facts.incidents), 'incident')} counted",
        "truth": [
            *(_mark(facts, "unwatched", piece, "not watched") for piece in _unwatched(facts)),
            *(_mark(facts, "void", void, "void: does not count") for void in facts.voids),
            *(_mark(facts, "decoy", decoy, "decoy") for decoy in facts.decoys),
            *(
                _mark(facts, "incident" if item in facts.counted else "uncounted", _range(item), item.title)
                for item in facts.incidents
            ),
        ],
        "shown": lanes[:SHOWN],
        "folded": lanes[SHOWN:],
        "ticks": [
            (
                round(100 * number / _TICKS, 2),
                elapsed_text((facts.end_ns - facts.start_ns) * number / _TICKS / SECOND_NS),
            )
            for number in range(_TICKS + 1)
        ],
    }


def _lane(track: Track) -> dict[str, Any]:
    facts = track.facts
    detected = {alarm.incident for alarm in track.alarms if alarm.outcome == "true"}
    missed = [item for item in facts.counted if item.incident not in detected]
    marks = [
        _mark(facts, alarm.outcome, (alarm.start_ns, alarm.end_ns), _MEANINGS[alarm.outcome]) for alarm in track.alarms
    ]
    marks += [_mark(facts, "missed", _range(item), f"missed: {item.title}") for item in missed]
    row = track.rows[0]
    return {
        "name": row.baseline,
        "kind": row.kind,
        "marks": marks,
        "recall": f"{len(facts.counted) - len(missed)}/{len(facts.counted)}",
        "false": track.count("false"),
    }


def _unwatched(facts: RecordingFacts) -> Iterable[Range]:
    return remove_ranges([(facts.start_ns, facts.end_ns)], facts.watched)


def _range(item: ScoredIncident) -> Range:
    return item.start_ns, item.end_ns


def _mark(facts: RecordingFacts, kind: str, interval: Range, meaning: str) -> dict[str, Any]:
    """Return a mark with its place in percent, and its address in the explorer."""
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
