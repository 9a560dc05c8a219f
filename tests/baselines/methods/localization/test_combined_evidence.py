"""Evidence adds up, called services explain symptoms, and units do not matter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from faultset.baselines.features.evidence import count_evidence, log_evidence, metric_evidence
from faultset.baselines.features.windows import Windows, windows_since_reference
from faultset.baselines.methods.localization.combined_evidence import CombinedEvidence, explain
from faultset.baselines.testing.episodes import ExampleEpisodes, example_episodes
from faultset.datasets import open_dataset

SECOND = 1_000_000_000
SAMPLE = Path(__file__).parents[4] / "datasets" / "sample"
FROZEN = {
    "01084746c57a": {"profile": 19.075045, "frontend": 5.395329, "search": 3.730810},
    "252926d80e7a": {"search": 34.686487, "rate": 19.603797, "geo": 13.374573},
    "31bf76ab9496": {"geo": 38.734066, "mongodb-geo": 26.877082, "reservation": 6.356937},
    "3b2068eeb801": {"mongodb-user": 25.725273, "user": 4.470178, "memcached-profile": 1.640038},
    "471b137ed15a": {"reservation": 28.125432, "geo": 1.602115, "profile": 0.868439},
    "53f1501ed880": {"rate": 45.612414, "frontend": 6.863049, "search": 5.054331},
    "a5edb68659bc": {"geo": 53.029360, "reservation": 6.951687, "profile": 3.877115},
}  # fmt: skip
"""The three highest scores that commit d524817, the last freeze, gives at the onset of each fault of the sample."""


@pytest.fixture(scope="module")
def examples() -> ExampleEpisodes:
    return example_episodes()


def onset_of(examples: ExampleEpisodes) -> int:
    assert examples.faulty.onset_ns is not None
    return examples.faulty.onset_ns


def test_the_service_at_fault_is_named_with_reasons(examples: ExampleEpisodes):
    ranking = CombinedEvidence().localize(examples.faulty.view, onset_of(examples))
    assert ranking.ordered[0] in examples.faulty.causes
    assert ranking.evidence[0].service == ranking.ordered[0]


def test_callers_of_an_ill_service_are_its_symptoms_and_it_is_credited_for_them():
    calls = [("front", "cart"), ("cart", "db"), ("front", "ads")]
    alone = explain({"db": 3.0}, {"ads": 3.5}, calls)
    assert max(alone.scores, key=alone.scores.__getitem__) == "ads"
    explanation = explain({"db": 3.0}, {"ads": 3.5, "front": 4.0, "cart": 5.0}, calls)
    assert max(explanation.scores, key=explanation.scores.__getitem__) == "db"
    assert explanation.edges["cart"][0] == "db"


def test_symptoms_that_the_front_end_does_not_reach_count_less():
    calls = [("front", "cart"), ("batch", "mail")]
    explanation = explain({}, {"front": 4.0, "cart": 4.0, "mail": 6.0}, calls, front="front")
    assert max(explanation.scores, key=explanation.scores.__getitem__) == "cart"
    healthy = explain({}, {"cart": 4.0, "mail": 6.0}, calls, front="front")
    assert max(healthy.scores, key=healthy.scores.__getitem__) == "mail"


def test_a_service_without_telemetry_is_blamed_when_several_callers_suffer_unexplained():
    calls = [("cart", "db"), ("user", "db"), ("ads", "mail")]
    explanation = explain({}, {"cart": 4.0, "user": 5.0, "ads": 2.0}, calls, blind=["db", "mail"])
    assert explanation.scores["db"] == 4.0
    assert "mail" not in explanation.scores


def test_what_callers_of_a_service_without_pods_show_comes_from_that():
    calls = [("front", "rate"), ("rate", "store")]
    evidence = {"rate": 40.0, "store": 7.0, "front": 3.0}
    assert max((alone := explain(evidence, {}, calls)).scores, key=alone.scores.__getitem__) == "rate"
    explanation = explain(evidence, {}, calls, unavailable={"rate", "store"})
    assert max(explanation.scores, key=explanation.scores.__getitem__) == "store"
    assert explanation.edges["rate"][0] == "store"


def test_equal_evidence_is_a_tie():
    explanation = explain({"a": 2.0, "b": 2.0}, {}, [])
    assert explanation.scores["a"] == explanation.scores["b"]


def test_units_decide_nothing(examples: ExampleEpisodes, monkeypatch: pytest.MonkeyPatch):
    plain = metric_evidence(examples.faulty.view, onset_of(examples))
    assert plain

    def scaled(*arguments, **options) -> Windows:
        windows = windows_since_reference(*arguments, **options)
        names = sorted({metric for _, metric in windows.series})
        factor = np.array([10.0 ** (6 * (-1) ** names.index(metric)) for _, metric in windows.series])
        return Windows(**{**vars(windows), "reference": windows.reference * factor, "values": windows.values * factor})

    monkeypatch.setattr("faultset.baselines.features.evidence.windows_since_reference", scaled)
    other = metric_evidence(examples.faulty.view, onset_of(examples))
    assert [(one.service, one.subject) for one in plain] == [(one.service, one.subject) for one in other]
    np.testing.assert_allclose([one.strength for one in plain], [one.strength for one in other], rtol=1e-6)


def test_rates_are_compared_and_not_counts():
    same, more = count_evidence(np.array([30.0, 30.0]), np.array([10.0, 30.0]), 300.0, 100.0)
    assert abs(same) < 1e-9
    assert more > 1


def test_error_lines_since_the_alarm_speak_against_who_wrote_them(examples: ExampleEpisodes):
    result = log_evidence(examples.faulty.view, onset_of(examples))
    assert all(one.service in examples.faulty.view.services and one.strength > 0 for one in result)


def test_its_answers_are_those_of_the_last_freeze() -> None:
    """If this fails on purpose, add a freeze to docs/results/comparisons.md with the data that its scores have seen."""
    dataset = open_dataset(SAMPLE)
    onsets = {episode: dataset.label(episode).onset_ns for episode in dataset.episodes}
    highest: dict[str, dict[str, float]] = {}
    for episode, onset_ns in onsets.items():
        if onset_ns is not None:
            ranking = CombinedEvidence().localize(dataset.view(episode), onset_ns)
            highest[episode] = {service: ranking.scores[service] for service in ranking.ordered[:3]}
    assert highest.keys() == FROZEN.keys()
    for episode, scores in highest.items():
        assert list(scores) == list(FROZEN[episode]), episode
        assert scores == pytest.approx(FROZEN[episode], rel=1e-6), episode
