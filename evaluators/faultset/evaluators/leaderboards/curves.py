"""Curves: how often methods are right when the alarm comes later, and when less of what follows it is seen."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from faultset.core.times import SECOND_NS
from faultset.evaluators.leaderboards.detection_facts import detection_facts
from faultset.evaluators.leaderboards.diagnosis import diagnosis_facts
from faultset.evaluators.leaderboards.localization import localization_facts
from faultset.evaluators.leaderboards.records import ALL_APPS, is_headline
from faultset.evaluators.results.rows import ResultRow, amount_of
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.statistics.clusters import clustered_mean
from faultset.evaluators.statistics.curves import Curve, CurvePoint

_RIGHT = 0.5
"""Share from which on an episode counts as answered; ties and seeds make fractions."""


class _Axis(NamedTuple):
    """What a curve is over, and where its rows are."""

    over: str
    task: str
    protocol: str
    """Of the rows of the curve."""
    beside: str
    """Protocol of the same episodes without the delay, or with the whole view."""


_AXES = (
    _Axis("delay", "localization", "delayed", "oracle"),
    _Axis("evidence", "detection", "evidence", "detected"),
    *(
        _Axis("evidence", task, protocol, beside)
        for task in ("localization", "rca")
        for protocol, beside in (("evidence", "oracle"), ("detected_evidence", "detected"))
    ),
)
_SHARES: Mapping[str, Callable[[Sequence[ResultRow]], float]] = {
    "detection": lambda rows: detection_facts(rows).detected,
    "localization": lambda rows: localization_facts(rows).ac1,
    "rca": lambda rows: diagnosis_facts(rows).joint,
}
"""How right the rows of one method on one episode are, one for each seed."""
_POSED: Mapping[str, Callable[[Truth], bool]] = {
    "detection": lambda truth: truth.onset_ns is not None,
    "localization": lambda truth: bool(truth.causes),
    "rca": lambda truth: bool(truth.diagnoses),
}
_Rows = Mapping[str, Mapping[float, Mapping[str, Sequence[ResultRow]]]]
"""Method -> seconds -> headline episode -> rows."""


def curves_of(rows: Sequence[ResultRow]) -> tuple[Curve, ...]:
    """One curve for each method, axis and application, and over all applications where there are several.

    Only headline episodes count. Many seconds are left with fewer episodes, whose fault is seen for longer; beside
    every point stands what the same episodes give with the alarm at the onset, or with the whole view.
    """
    apps = sorted({row.truth.app for row in rows})
    curves = []
    for axis in _AXES:
        share = _SHARES[axis.task]
        by = _grouped(rows, axis.task, axis.protocol)
        beside = _grouped(rows, axis.task, axis.beside)
        for app in [*apps, ALL_APPS] if len(apps) > 1 else apps:
            for baseline, places in by.items():
                whole = beside.get(baseline, {}).get(-1.0, places.get(0.0, {}) if axis.over == "delay" else {})
                points = [_point(at, here, whole, share) for at in places if (here := _of_app(places[at], app))]
                if points:
                    first = next(iter(next(iter(places.values())).values()))[0]
                    curves.append(
                        Curve(
                            over=axis.over,
                            task=axis.task,
                            protocol=axis.beside,
                            baseline=baseline,
                            kind=first.kind,
                            app=app,
                            points=tuple(points),
                        )
                    )
    return tuple(curves)


def times_to_be_right(rows: Sequence[ResultRow]) -> dict[tuple[str, str], dict[str, dict[str, float]]]:
    """Return (task, protocol of the table) -> method -> episode -> seconds after the onset, over the budgets tried.

    It is the end of the shortest view from which on the answer is right, and right with every larger budget that was
    tried; where there is none, the time is infinite. After an alarm it includes the time that the alarm took.
    """
    found: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for axis in _AXES:
        by = _grouped(rows, axis.task, axis.protocol) if axis.over == "evidence" else {}
        if by:
            found[axis.task, axis.beside] = {name: _times(places, _SHARES[axis.task]) for name, places in by.items()}
    return found


def _times(
    places: Mapping[float, Mapping[str, Sequence[ResultRow]]], share: Callable[[Sequence[ResultRow]], float]
) -> dict[str, float]:
    times: dict[str, float] = {}
    wrong: set[str] = set()
    for at in sorted(places, reverse=True):
        for episode, found in places[at].items():
            if share(found) > _RIGHT and episode not in wrong:
                times[episode] = _seen_s(found[0])
            else:
                wrong.add(episode)
                times.setdefault(episode, math.inf)
    return times


def _seen_s(row: ResultRow) -> float:
    """Return the seconds from the onset to the end of the view that a method was shown."""
    truth = row.truth
    assert truth.onset_ns is not None
    assert row.evidence_s is not None
    since_ns = truth.onset_ns if row.given_alarm_ns is None else row.given_alarm_ns
    end_ns = min(since_ns + round(row.evidence_s * SECOND_NS), truth.view_end_ns)
    return max(0.0, (end_ns - truth.onset_ns) / SECOND_NS)


def _grouped(rows: Sequence[ResultRow], task: str, protocol: str) -> _Rows:
    by: dict[str, dict[float, dict[str, list[ResultRow]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in rows:
        if (row.task, row.protocol) == (task, protocol) and is_headline(row.truth) and _POSED[task](row.truth):
            by[row.baseline][amount_of(row.delay_s, row.evidence_s)][row.episode].append(row)
    return {name: {at: dict(sorted(by[name][at].items())) for at in sorted(by[name])} for name in sorted(by)}


def _of_app(episodes: Mapping[str, Sequence[ResultRow]], app: str) -> dict[str, Sequence[ResultRow]]:
    return {e: rows for e, rows in episodes.items() if app in (ALL_APPS, rows[0].truth.app)}


def _point(
    at: float,
    here: Mapping[str, Sequence[ResultRow]],
    whole: Mapping[str, Sequence[ResultRow]],
    share: Callable[[Sequence[ResultRow]], float],
) -> CurvePoint:
    others = [share(whole[e]) for e in here if e in whole]
    keys = [rows[0].truth.cluster for rows in here.values()]
    return CurvePoint(
        at_s=at,
        right=clustered_mean([share(rows) for rows in here.values()], keys),
        right_otherwise=float(np.mean(others)) if others else math.nan,
    )
