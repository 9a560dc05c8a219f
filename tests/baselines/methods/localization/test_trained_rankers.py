"""The boosted ranker learns features of faulty services, independent of names."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from faultset.baselines.methods.localization.trained_rankers import NAMES, BoostedRanker, describe_services
from faultset.baselines.testing.episodes import EMPTY, ExampleEpisodes, example_episodes

SECOND = 1_000_000_000


@pytest.fixture(scope="module")
def examples() -> ExampleEpisodes:
    return example_episodes()


def faults(examples: ExampleEpisodes) -> list:
    return [item for item in examples.training if item.causes]


def test_a_service_that_was_never_faulty_in_training_is_located(examples: ExampleEpisodes):
    tested = examples.faulty
    taught = [item for item in faults(examples) if not set(item.causes) & set(tested.causes)]
    assert taught
    assert tested.onset_ns is not None
    ranking = BoostedRanker().fit(taught).localize(tested.view, tested.onset_ns + 2 * SECOND)
    assert ranking.ordered[0] in tested.causes
    assert ranking.evidence


def test_other_labels_teach_something_else(examples: ExampleEpisodes):
    taught = faults(examples)
    wrong = [dataclasses.replace(item, causes=("frontend",), service="frontend") for item in taught]
    tested = examples.faulty
    assert tested.onset_ns is not None
    first = BoostedRanker().fit(wrong).localize(tested.view, tested.onset_ns).ordered[0]
    assert first == "frontend" or "frontend" in tested.causes


def test_it_abstains_without_faults_or_evidence(examples: ExampleEpisodes):
    view = examples.faulty.view
    healthy = [item for item in examples.training if not item.causes]
    for taught in ([], healthy):
        assert BoostedRanker().fit(taught).localize(view, view.reference[1]).abstains
    nothing = examples.alter("no rows", EMPTY)
    assert describe_services(nothing, view.reference[1]) is None
    assert BoostedRanker().fit(faults(examples)).localize(nothing, view.reference[1]).abstains


def test_a_signature_says_the_same_of_every_service(examples: ExampleEpisodes):
    tested = examples.faulty
    assert tested.onset_ns is not None
    result = describe_services(tested.view, tested.onset_ns)
    assert result is not None
    assert result.rows.shape == (len(result.services), len(NAMES))
    assert np.isfinite(result.rows).all()
    assert not any(service in name for name in NAMES for service in result.services)
    shares = result.rows[:, len(NAMES) // 2 :]
    assert np.abs(shares).max() <= 1
    latency = result.rows[:, NAMES.index("latency")]
    assert result.services[int(latency.argmax())] in tested.causes
