"""Tables of detectors on recordings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from faultset.evaluators.leaderboards.records import ALL_APPS, HEADLINE, RECORDED, Entry, Table
from faultset.evaluators.leaderboards.scores import GROUPS, group_of
from faultset.evaluators.leaderboards.tables import correct_p
from faultset.evaluators.recordings.metrics import (
    AGGREGATES,
    DetectorTracks,
    above_chance,
    estimate_metrics,
    mean_above_chance,
)
from faultset.evaluators.recordings.tracks import Track
from faultset.evaluators.statistics.comparison import paired_difference

SAME_RATE = "random alarms"
"""The control of every detector: its own alarms, all shifted by the same random time."""


def build_recording_tables(tracks: Mapping[str, Sequence[Track]], seed: int, threshold_rule: str) -> list[Table]:
    """Build a table for each application, then one for all together, each by the inputs of methods.

    Parameters
    ----------
    tracks
        Detector -> its tracks.
    seed
        Seed of tests that draw sign flips.
    threshold_rule
        Threshold policy of all detectors.
    """
    apps = sorted({track.facts.app for of_detector in tracks.values() for track in of_detector})
    tables = []
    for app in [*apps, ALL_APPS] if len(apps) > 1 else apps:
        for group in GROUPS:
            chosen = {
                name: DetectorTracks(tracks=tuple(t for t in of_detector if app in (ALL_APPS, t.facts.app)))
                for name, of_detector in tracks.items()
                if group_of(of_detector[0].rows[0]) == group
            }
            chosen = {name: detector for name, detector in chosen.items() if detector.tracks}
            if chosen:
                tables.append(_build_table(chosen, app, group, seed, threshold_rule))
    return tables


def _build_table(
    detectors: Mapping[str, DetectorTracks], app: str, group: str, seed: int, threshold_rule: str
) -> Table:
    entries = {name: _build_entry(name, detector, seed) for name, detector in detectors.items()}
    methods = {name: entry.against for name, entry in entries.items() if entry.against is not None}
    first = next(iter(detectors.values()))
    clusters = len({item.cluster for item in first.headline})
    adjusted, no_p = correct_p(methods, clusters)
    above = {name: mean_above_chance(detector) for name, detector in detectors.items()}
    order = sorted(entries, key=lambda name: (-above[name] if not math.isnan(above[name]) else math.inf, name))
    ranked = [
        replace(
            entries[name],
            rank=1 + sum(above[other] > above[name] + 1e-9 for other in order),
            adjusted_p=adjusted.get(name),
        )
        for name in order
    ]
    facts = {track.facts.recording: track.facts for track in first.tracks}.values()
    return Table(
        task="detection",
        protocol=RECORDED,
        app=app,
        verdict=HEADLINE,
        group=group,
        metrics=tuple(AGGREGATES),
        entries=tuple(ranked),
        floor={},
        episodes=len(first.headline),
        clusters=clusters,
        strongest_control=SAME_RATE,
        no_p=no_p,
        threshold_rule=threshold_rule,
        watched_s=sum(end - start for each in facts for start, end in each.watched) / 1e9,
    )


def _build_entry(name: str, detector: DetectorTracks, seed: int) -> Entry:
    rows = [row for track in detector.tracks for row in track.rows]
    recalls, chances, clusters = above_chance(detector)
    return Entry(
        baseline=name,
        kind=rows[0].kind,
        extra_inputs=rows[0].needs,
        rank=0,
        metrics=estimate_metrics(detector),
        rows=len(rows),
        failed=dict(Counter(row.status for row in rows if row.status != "ok")),
        seconds=_median(row.cpu_seconds if row.cpu_seconds is not None else row.seconds for row in rows),
        fit_seconds=_median(row.fit_seconds for row in rows),
        peak_bytes=_median(row.peak_bytes for row in rows),
        seeds=len({row.seed for row in rows}),
        against=paired_difference(recalls, chances, clusters, seed) if recalls and rows[0].kind != "control" else None,
    )


def _median(values: Iterable[float | None]) -> float:
    numbers = [value for value in values if value is not None]
    return float(np.median(numbers)) if numbers else math.nan
