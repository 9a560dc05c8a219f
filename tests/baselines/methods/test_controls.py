"""Trivial controls."""

from __future__ import annotations

from typing import Any

from faultset.baselines.contract import Labelled
from faultset.baselines.methods.controls import (
    AlwaysNo,
    AlwaysYes,
    Clock,
    LoudestLog,
    MostFrequent,
    RandomDetector,
    RandomRanking,
)
from faultset.datasets.views import EpisodeView

SECOND = 1_000_000_000


def labelled(view: EpisodeView, **truth: Any) -> Labelled:
    return Labelled(view=view, service=None, system_level=None, fault_type=None, **truth)


def test_constants_are_constant(example) -> None:
    for episode in example.episodes:
        view = example.view(episode)
        yes = AlwaysYes().detect(view)
        assert yes.alarm_ns == yes.times_ns[0]
        assert AlwaysNo().detect(view).alarm_ns is None


def test_the_clock_alarms_at_the_latest_onset_of_its_training_episodes(example, faulty) -> None:
    view = example.view(faulty)
    start, end = view.window
    assert Clock().detect(view).alarm_ns == start + 60 * SECOND
    assert Clock(share=0.75).detect(view).alarm_ns == start + 90 * SECOND
    onsets = [start + round(share * (end - start)) for share in (0.6, 0.7)]
    training = [labelled(view, onset_ns=onset) for onset in (onsets[0], None, onsets[1])]
    assert Clock().fit(training).detect(view).alarm_ns == onsets[1]


def test_random_detector_alarms_with_its_probability(example, faulty) -> None:
    view = example.view(faulty)
    alarms = [RandomDetector(seed=seed).detect(view).alarm_ns for seed in range(60)]
    assert 15 < sum(alarm is not None for alarm in alarms) < 45
    assert len(set(alarms)) > 10
    assert all(RandomDetector(probability=0.0, seed=seed).detect(view).alarm_ns is None for seed in range(9))
    assert all(RandomDetector(probability=1.0, seed=seed).detect(view).alarm_ns for seed in range(9))


def test_random_ranking_depends_on_seed_and_episode_but_not_on_order(example) -> None:
    one, two = (example.view(episode) for episode in example.episodes[:2])
    orders = {RandomRanking(seed=seed).localize(one, 0).ordered for seed in range(8)}
    assert len(orders) > 4
    assert RandomRanking().localize(one, 0).ordered != RandomRanking().localize(two, 0).ordered
    assert set(next(iter(orders))) == set(one.services)


def test_most_frequent_counts_the_causes_of_its_training_episodes(example, faulty) -> None:
    view = example.view(faulty)
    assert MostFrequent().localize(view, 0).abstains
    causes = [("rate", "geo"), ("geo",), (), ("elsewhere",), ("elsewhere",), ("elsewhere",)]
    fitted = MostFrequent().fit([labelled(view, causes=found) for found in causes])
    assert fitted.localize(view, 0).scores == {"geo": 2.0, "rate": 1.0}


def test_loudest_log_hears_levels_and_words(example, faulty) -> None:
    label = example.label(faulty)
    ranking = LoudestLog().localize(example.view(faulty), int(label.inject_start_ns) + 4 * SECOND)
    assert ranking.ordered == (label.targets[0],)
    assert len(ranking.pods) == 1
    assert next(iter(ranking.pods)).startswith(f"{label.targets[0]}-")
