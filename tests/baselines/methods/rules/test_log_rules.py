"""Rules on warning events and on error lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from faultset.baselines.contract import Ranking
from faultset.baselines.methods.detection.deeplog import DeepLogMarkovDetector
from faultset.baselines.methods.rules.log_rules import LogRateDetector, blame, count_surprise
from faultset.baselines.registry import get_baseline
from faultset.datasets.format.schemas import TABLES

SECOND = 1_000_000_000
Rows = Sequence[tuple[float, str, str]]


def table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    schema = TABLES[name]
    usual = {"episode": "e", "pod": "p", "container": "c", "kind": "Pod", "name": "n", "count": 1, "message": ""}
    plain = [{field.name: None for field in schema} | usual | row for row in rows]
    return pa.table({field.name: pa.array([row[field.name] for row in plain], field.type) for field in schema})


@pytest.fixture
def told(example, faulty, alter):
    """Apply the rule to events and lines, given as (second, service, reason or message)."""
    start_ns = example.view(faulty).window[0]

    def ask(events: Rows = (), lines: Rows = ()) -> Ranking:
        at = lambda second: start_ns + round(second * SECOND)  # noqa: E731
        warnings = [
            {"time": at(second), "service": service, "reason": reason, "type": "Warning"}
            for second, service, reason in events
        ]
        logs = [{"time": at(second), "service": service, "message": text} for second, service, text in lines]
        view = alter(
            faulty, {"events": lambda rows: table("events", warnings), "logs": lambda rows: table("logs", logs)}
        )
        return get_baseline("event-log").build().localize(view, at(60))  # type: ignore[union-attr]

    return ask


def test_a_new_warning_comes_before_any_number_of_complaints(told) -> None:
    lines = [(70 + number, "search", "request failed") for number in range(40)]
    ranking = told([(65, "geo", "BackOff")], lines)
    assert ranking.ordered == ("geo", "search")
    assert ranking.evidence[0].subject == "BackOff"


def test_more_kinds_of_warnings_weigh_more(told) -> None:
    ranking = told([(65, "geo", "BackOff"), (66, "geo", "Unhealthy"), *[(70, "rate", "BackOff")] * 9])
    assert ranking.scores == {"geo": 2.0, "rate": 1.0}


def test_a_warning_of_the_reference_does_not_count(told) -> None:
    assert told([(10, "geo", "Unhealthy"), (65, "geo", "Unhealthy")]).abstains


def test_complaints_are_counted_beyond_the_usual_rate(told) -> None:
    usual = [(float(second), "rate", "cache error") for second in range(120)]
    ranking = told(lines=[*usual, (70, "geo", "cannot open index: failed")])
    assert ranking.ordered[0] == "geo"
    assert ranking.scores["geo"] > 5 * ranking.scores.get("rate", 0.0)


def test_a_caller_that_complains_of_a_service_points_at_it(told) -> None:
    ranking = told(lines=[(70, "search", "dial tcp geo:8083: connection refused"), (71, "geo", "request served")])
    assert ranking.ordered == ("geo",)


def test_pods_are_named_by_events_about_them_and_by_their_own_complaints(told) -> None:
    ranking = told([(65, "geo", "BackOff")], [(70, "rate", "cache error"), (71, "search", "geo refused")])
    assert ranking.pods == {"n": 1.0, "p": 0.5}


def test_names_count_only_where_the_writer_calls_that_service() -> None:
    called = {"search": ["geo", "rate"]}
    assert blame(["search"], ["rate failed"], called) == ["rate"]
    assert blame(["search"], ["generate failed"], called) == ["search"]
    assert blame(["frontend"], ["geo failed"], called) == ["frontend"]
    assert blame([None], [None], called) == [None]


def test_a_count_is_as_surprising_as_its_negative_binomial_tail() -> None:
    healthy = np.tile([[4], [6], [5]], (20, 1))
    windows, total = 60 / 5, 300 / 60 * 60 / 5
    rate = (total + 0.5) / windows
    law = stats.nbinom(rate * windows, 1 / (1 + 1 / windows))
    queries = np.array([[20], [0], [5]])
    expected = [-np.log10(2 * law.sf(19)), np.log10(2 * law.cdf(0)), 0.0]
    assert count_surprise(healthy, queries)[:, 0] == pytest.approx(expected, abs=1e-6)


def test_counts_that_scatter_are_less_surprising() -> None:
    rng = np.random.default_rng(0)
    steady, wild = rng.poisson(20, (50, 1)), rng.negative_binomial(2, 2 / 22, (50, 1))
    queries = np.array([[60]])
    assert count_surprise(steady, queries)[0, 0] > 4 > count_surprise(wild, queries)[0, 0] > 0


def test_the_more_lines_of_a_new_template_the_more_surprising() -> None:
    result = count_surprise(np.zeros((40, 1), dtype=int), np.arange(6)[:, None])[:, 0]
    assert result[0] == 0.0
    assert (np.diff(result[1:]) > 0).all()
    assert result[5] > 4


@pytest.mark.parametrize("detector", [LogRateDetector(), DeepLogMarkovDetector()])
def test_the_line_that_complains_is_the_evidence(detector, example, faulty) -> None:
    detection = detector.detect(example.view(faulty))
    label = example.label(faulty)
    assert detection.alarm_ns is not None
    assert detection.alarm_ns > label.inject_start_ns
    assert label.targets[0] in {item.service for item in detection.evidence}
    assert any("deadline exceeded" in item.subject for item in detection.evidence)


def test_a_service_that_falls_silent_is_reported(example, alter) -> None:
    healthy = next(episode for episode in example.episodes if not example.label(episode).fault)
    view = example.view(healthy)
    cut = view.reference[1] + 20 * SECOND

    def silence(rows: pa.Table) -> pa.Table:
        times = rows["time"].cast("int64").to_numpy()
        mine = np.array(rows["service"].to_pylist()) == "geo"
        return rows.filter(pa.array((times < cut) | ~mine))

    assert LogRateDetector().detect(view).alarm_ns is None
    detection = LogRateDetector().detect(alter(healthy, {"logs": silence}))
    assert detection.alarm_ns is not None
    assert detection.alarm_ns > cut
    assert detection.evidence[0].service == "geo"
    assert "fewer" in detection.evidence[0].detail
