"""Published scorers compared with results by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from faultset.baselines import registry
from faultset.baselines.contract import Ranking
from faultset.baselines.methods.controls import SeriesStopped
from faultset.baselines.methods.rules.metric_rules import (
    PRISM,
    Baro,
    KSigma,
    MaxZ,
    NSigma,
    combine_properties,
    published_scores,
)
from faultset.datasets.views import EpisodeView
from tests.baselines.conftest import Observe
from tests.baselines.metric_series import CALLS, SECOND, SERVICES, World, ask, dropped, healthy_series

NAN = np.nan
REFERENCE = np.array(
    [[1.0, 5.0, 0.0, 2.0, 7.0], [3.0, 5.0, 0.0, 4.0, 7.0], [5.0, 5.0, 0.0, 6.0, 7.0], [7.0, 5.0, 9.0, 8.0, 7.0]]
)
VALUES = np.array([[8.0, 5.0, 4.0, 1.0, 7.0], [12.0, 9.0, 1.0, 0.0, 7.0]])


def test_n_sigma_divides_by_the_population_standard_deviation():
    scores = published_scores(REFERENCE, VALUES, robust=False)
    assert scores[0] == pytest.approx((12 - 4) / np.std([1, 3, 5, 7]))


def test_baro_divides_by_the_interquartile_range():
    scores = published_scores(REFERENCE, VALUES, robust=True)
    assert scores[0] == pytest.approx((12 - 4) / (5.5 - 2.5))


def test_a_range_of_nothing_counts_as_one():
    reference = np.array([[0.0], [0.0], [0.0], [0.0], [9.0]])
    assert published_scores(reference, np.array([[4.0], [1.0]]), robust=True).tolist() == [4.0]


@pytest.mark.parametrize("robust", [False, True])
def test_series_that_are_constant_in_either_window_or_only_fall_score_nothing(robust: bool):
    scores = published_scores(REFERENCE, VALUES, robust=robust)
    assert scores[[1, 3, 4]].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("robust", [False, True])
def test_gaps_are_no_samples(robust: bool):
    with_gaps = np.vstack([VALUES, np.full((1, VALUES.shape[1]), NAN)])
    plain = published_scores(REFERENCE, VALUES, robust=robust)
    assert published_scores(REFERENCE, with_gaps, robust=robust).tolist() == plain.tolist()


def test_the_preprocessing_can_be_changed_one_part_at_a_time():
    def scores(**changed: Any) -> list[float]:
        return published_scores(REFERENCE, VALUES, robust=True, **changed).tolist()

    usual, falls, constant = scores(), scores(sign="both"), scores(keep_constant=True)
    assert [a == b for a, b in zip(usual, falls, strict=True)] == [True, True, True, False, True]
    assert falls[3] == pytest.approx((5 - 0) / (6.5 - 3.5))
    assert [a == b for a, b in zip(usual, constant, strict=True)] == [True, False, True, True, True]
    assert constant[1] == 4.0


@pytest.mark.parametrize("ranker", [NSigma, Baro, MaxZ])
def test_deviation_rankers_find_the_target_of_the_example(ranker, example, faulty) -> None:
    label = example.label(faulty)
    ranking = ranker().localize(example.view(faulty), int(label.inject_start_ns) + 4 * SECOND)
    assert ranking.ordered[0] == label.targets[0]


@pytest.mark.parametrize("name", ["nsigma", "baro"])
def test_published_scorers_find_what_rises_and_not_what_falls(name: str, world: World) -> None:
    assert ask(name, world(dropped())).ordered[0] != "user"
    series = healthy_series()
    series["user", "heap"] = series["user", "heap"] + np.where(np.arange(120) >= 70, 40.0, 0.0)
    assert ask(name, world(series)).ordered[0] == "user"


def test_k_sigma_names_series_that_rose_or_stopped(example, faulty, alter) -> None:
    label = example.label(faulty)
    detection = KSigma().detect(example.view(faulty))
    assert detection.evidence[0].detail.endswith("up")

    def silence(rows: pa.Table) -> pa.Table:
        late = rows["time"].cast("int64").to_numpy() >= label.inject_start_ns
        gone = np.array([name == "rate" for name in rows["service"].to_pylist()])
        return rows.filter(pa.array(~(late & gone)))

    healthy = next(episode for episode in example.episodes if not example.label(episode).fault)
    onset = example.view(healthy).reference[1] + 20 * SECOND
    label = replace(label, inject_start_ns=onset)
    view = alter(healthy, {"metrics": silence})
    detection = KSigma().detect(view)
    assert detection.alarm_ns is not None
    assert detection.alarm_ns > onset
    assert {(item.service, item.detail) for item in detection.evidence} == {("rate", "series stopped")}
    stopped = SeriesStopped().localize(view, detection.alarm_ns)
    assert stopped.ordered == ("rate",)
    assert stopped.scores["rate"] > 0.9


UPWARDS = ("nsigma", "baro")
"""In their published form these look at what rises only."""
BOTH_WAYS = (
    "nsigma-two-sided",
    "baro-two-sided",
    "epsilon-diagnosis",
    "circa",
    "rcd",
    "micro-cause",
    "torai",
    "simple-rca",
)
LOCALIZERS = (*UPWARDS, *BOTH_WAYS)


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_decreases_are_located(name: str, world: World) -> None:
    assert ask(name, world(dropped())).ordered[0] == "user"


@pytest.mark.parametrize("name", LOCALIZERS)
def test_constant_series_give_no_ranking(name: str, world: World) -> None:
    series = {key: np.full(120, 4.0) for key in healthy_series()}
    assert ask(name, world(series)).abstains


@pytest.mark.parametrize("name", [name for name in BOTH_WAYS if name != "micro-cause"])
def test_the_answer_follows_the_service_and_not_its_name(name: str, world: World) -> None:
    renamed = ("zeta", "yota", "xi", "alpha", "beta", "gamma")
    names: dict[str, str] = dict(zip(SERVICES, renamed, strict=True))
    calls = tuple((names[caller], names[callee]) for caller, callee in CALLS)
    ranking = ask(name, world(dropped(services=renamed, target=names["user"]), renamed, calls))
    assert ranking.ordered[0] == names["user"]


@pytest.mark.parametrize("name", LOCALIZERS)
def test_the_answer_needs_no_truth(name: str, example, faulty, alter) -> None:
    def localize(view: EpisodeView) -> Ranking:
        built: Any = registry.get_baseline(name).build()
        return built.localize(view, view.reference[1] + (view.window[1] - view.reference[1]) // 2)

    telemetry_alone = alter(faulty, {})
    assert localize(telemetry_alone) == localize(example.view(faulty))


@pytest.mark.parametrize("name", LOCALIZERS)
def test_metric_answers_belong_to_named_services(name: str, world: World) -> None:
    ranking = ask(name, world(dropped(seed=5)))
    assert {service for service, _ in ranking.metrics} <= set(ranking.scores)
    assert name == "torai" or ranking.metrics


@pytest.mark.parametrize("name", LOCALIZERS)
def test_a_view_with_hardly_any_samples_is_survived(name: str, world: World) -> None:
    for seconds in (1, 49, 52):
        ranking = ask(name, world(healthy_series(seconds=seconds)), second=50)
        assert set(ranking.scores) <= set(SERVICES)


def test_a_service_with_a_successful_rollout_comes_last(observe: Observe, example, faulty) -> None:
    target = example.label(faulty).targets[0]
    ready = {"phase": "Running", "ready": True, "containers": []}
    old = [(at, ready) for at in range(0, 85, 10)]
    new = [(72, ready | {"ready": False}), *((at, ready) for at in range(84, 120, 10))]
    view, alarm_ns = observe({("Pod", f"{target}-1", target): old, ("Pod", f"{target}-2", target): new})
    rankings = [registry.get_localizer(name).localize(view, alarm_ns) for name in ("max-z", "max-z-without-rollouts")]
    assert rankings[0].ordered[0] == rankings[1].ordered[-1] == target
    assert rankings[0].ordered[1:] == rankings[1].ordered[:-1]


def test_the_additive_score_grows_with_the_sum_of_both_deviations() -> None:
    scores = combine_properties(np.array([3.0, 0.0, 6.0]), np.array([4.0, 6.9, 0.0]))
    assert scores == pytest.approx([7 - np.log(8), 6.9 - np.log(7.9), 6 - np.log(7)])


def test_scores_of_an_episode_are_those_by_hand(world: World) -> None:
    # Every series is 4, 6, 4, ... so its mean is 5 and its spread 1. One peak is 12 and another 8.
    series = {name: np.where(np.arange(120) % 2, 6.0, 4.0) for name in healthy_series()}
    series["user", "delay"][75] += 6.0
    series["user", "work"][75] += 2.0
    view = world(series)
    scores = PRISM().localize(view, view.window[0] + 72 * SECOND).scores
    assert scores["user"] == pytest.approx(7 + 3 - np.log(1 + 7 + 3), rel=0.02)
    assert scores["db"] == pytest.approx(1 + 1 - np.log(1 + 1 + 1), rel=0.02)


def test_a_service_that_only_shows_symptoms_ranks_behind_one_that_deviates_inside_as_well(world: World) -> None:
    series = healthy_series()
    late = np.arange(120) >= 70
    series["front", "delay"] = series["front", "delay"] + 25.0 * late
    series["user", "delay"] = series["user", "delay"] + 6.0 * late
    series["user", "work"] = series["user", "work"] + 2.0 * late
    view = world(series)
    ranking = PRISM().localize(view, view.window[0] + 72 * SECOND)
    assert ranking.ordered[0] == "user"
    assert ranking.metrics["front", "delay"] > ranking.metrics["user", "delay"]
    assert PRISM(combination="conjunctive").localize(view, view.window[0] + 72 * SECOND).ordered[0] == "user"


def test_a_mean_over_time_ignores_a_single_spike(world: World) -> None:
    series = healthy_series()
    late = np.arange(120) >= 70
    series["user", "work"] = series["user", "work"] + 3.0 * late
    series["mail", "work"] = series["mail", "work"] + 30.0 * (np.arange(120) == 80)
    view = world(series)
    alarm_ns = view.window[0] + 72 * SECOND
    assert PRISM(pooling_of_time="max").localize(view, alarm_ns).ordered[0] == "mail"
    assert PRISM(pooling_of_time="mean").localize(view, alarm_ns).ordered[0] == "user"
