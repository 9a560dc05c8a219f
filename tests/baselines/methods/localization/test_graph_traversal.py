"""Graph traversal and descent from the alarm: shares of blame along calls."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faultset.baselines.features.windows import Windows
from faultset.baselines.methods.localization.graph_traversal import (
    MAX_Z,
    UNREACHED_WEIGHT,
    AlarmDescent,
    Microscope,
    count_explained,
    divide_blame,
    find_path_ends,
    measure_deviations,
)
from faultset.core.times import SECOND_NS
from faultset.datasets.dataset import open_dataset
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.format.labels import AlarmLocation
from faultset.datasets.views import EpisodeView
from faultset.evaluators.results.truth import Truth, build_truth
from tests.baselines.conversations import SECOND, START, conversation, spoken


def order(found: dict[str, float]) -> list[str]:
    return sorted(found, key=lambda name: -found[name])


def test_all_blame_is_divided_and_none_is_lost():
    calls = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "a"), ("c", "b")]
    blame = divide_blame(calls, {"a": 5.0, "b": 3.0, "c": 2.0, "d": 4.0, "e": 9.0}, "a")
    assert sum(blame.values()) == pytest.approx(1.0)
    assert "e" not in blame


def test_with_equal_symptoms_the_nearer_of_two_ends_is_blamed_more():
    calls = [("front", "near"), ("front", "cart"), ("front", "mail"), ("cart", "far"), ("cart", "ads")]
    blame = divide_blame(calls, dict.fromkeys(("front", "near", "cart", "mail", "far", "ads"), 3.0), "front")
    assert blame["near"] == blame["mail"] > blame["far"] == blame["ads"] > blame["cart"] == blame["front"] == 0.0


def test_who_explains_more_ill_callers_is_blamed_more():
    calls = [("front", "cart"), ("front", "ads"), ("mail", "cart")]
    blame = divide_blame(calls, dict.fromkeys(("front", "cart", "ads", "mail"), 3.0), "front")
    assert blame["cart"] == 2 * blame["ads"]
    calm = divide_blame(calls, dict.fromkeys(("front", "cart", "ads"), 3.0), "front")
    assert calm["cart"] == calm["ads"]


def test_a_symptom_that_no_callee_shows_is_the_services_own():
    assert divide_blame([("front", "cart")], {"front": 3.0}, "front") == {"front": 1.0}
    blame = divide_blame([("front", "cart")], {"front": 9.0, "cart": 1.0}, "front")
    assert order(blame) == ["front", "cart"]


def test_calls_in_a_circle_end():
    blame = divide_blame([("a", "b"), ("b", "a"), ("b", "c"), ("c", "b"), ("a", "a")], dict.fromkeys("abc", 2.0), "a")
    assert order(blame)[0] == "c"
    assert sum(blame.values()) == pytest.approx(1.0)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    """Return an episode with a fault."""
    root = tmp_path_factory.mktemp("data") / "shop"
    write_example_dataset(root, episodes=4, seed=1, baseline_s=40, fault_s=40)
    dataset = open_dataset(root)
    truths = [build_truth(dataset.label(episode), dataset.view(episode).context) for episode in dataset.episodes]
    truth = next(truth for truth in truths if truth.faulty)
    return dataset.path(truth.episode), truth


def ranked(slow: tuple[Path, Truth], place: AlarmLocation | None) -> dict[str, Any]:
    path, truth = slow
    assert truth.onset_ns is not None
    return dict(AlarmDescent().localize(EpisodeView(path, alarm_location=place), truth.onset_ns).scores)


def test_the_place_decides_where_the_descent_begins(slow: tuple[Path, Truth]):
    path, truth = slow
    front = EpisodeView(path).context.workload_entry
    (cause,) = truth.causes[0][:1]
    from_front = ranked(slow, AlarmLocation(service=front))
    assert order(from_front)[0] == cause
    # Without a place, it begins at the front end.
    assert ranked(slow, None) == from_front
    # No calls lead from this service to the cause, so all the blame stays with it.
    leaf = next(s for s in sorted(truth.candidates) if s not in {a for a, _ in truth.calls} and s != cause)
    from_leaf = ranked(slow, AlarmLocation(service=leaf))
    assert order(from_leaf)[0] == leaf
    assert from_leaf[leaf] > 1 - 2 * UNREACHED_WEIGHT > from_leaf.get(cause, 0.0)


def test_a_place_outside_the_candidates_gives_no_ranking(slow: tuple[Path, Truth]):
    assert ranked(slow, AlarmLocation(service="elsewhere")) == {}


def test_the_metric_of_the_alarm_decides_which_symptom_is_followed(slow: tuple[Path, Truth]):
    path, _ = slow
    view = EpisodeView(path)
    front = view.context.workload_entry
    names = sorted(set(view.metrics().query("service == @front")["metric"].astype(str)))
    role = view.catalogue.role_of
    latency = next(name for name in names if role(name) == "latency")
    ranking = ranked(slow, AlarmLocation(service=front, metric=latency))
    assert ranking == ranked(slow, AlarmLocation(service=front, metric=latency[:-1] + "*"))
    # A metric without either symptom allows both.
    assert ranked(slow, AlarmLocation(service=front, metric="no-such-metric")) == ranked(
        slow, AlarmLocation(service=front)
    )


ALARM_NS = 30 * SECOND_NS


def windows(**series: list[float]) -> Windows:
    """Return windows with 20 healthy steps, then values up to step 40; NaN means a stopped series."""
    rng = np.random.default_rng(0)
    values = np.array(list(series.values()), dtype=float).T
    return Windows(
        series=tuple((name, "latency") for name in series),
        step_ns=SECOND_NS,
        reference=1 + 0.1 * rng.standard_normal((20, len(series))),
        values=values,
        absent=np.isnan(values),
        times_ns=SECOND_NS * np.arange(21, 21 + len(values)),
    )


def moved(upwards: bool = True, **series: list[float]) -> dict[str, float]:
    return measure_deviations(windows(**series), range(len(series)), "front", ALARM_NS, upwards=upwards)


CALM = [1.0, 1.1, 0.9, 1.0, 1.1] * 4
SLOW = CALM[:10] + [9.0] * 10


def test_a_service_that_is_slow_with_the_front_end_is_ill_and_a_calm_one_is_not():
    result = moved(front=SLOW, slow=SLOW, calm=CALM)
    assert result["slow"] > 10
    assert result["calm"] < 3


def test_what_moves_against_the_front_end_does_not_count():
    assert moved(front=SLOW, other=[9.0] * 10 + CALM[:10])["other"] == 0


def test_a_service_whose_series_stops_at_the_alarm_is_as_ill_as_any():
    assert moved(front=SLOW, dead=CALM[:10] + [np.nan] * 10)["dead"] == MAX_Z


def test_one_missing_sample_does_not_count_as_a_stop():
    assert moved(front=SLOW, once=[*CALM[:12], np.nan, *CALM[13:]])["once"] < 3


@pytest.mark.parametrize("upwards", [True, False])
def test_only_some_roles_are_ill_when_they_fall(upwards):
    assert (moved(upwards, front=CALM[:10] + [0.0] * 10)["front"] > 3) is not upwards


def test_a_callee_that_explains_ill_callers_comes_before_them_and_others_are_left_out():
    result = count_explained(
        [("front", "cart"), ("cart", "db"), ("x", "y")], {"front": 5.0, "cart": 5.0, "db": 5.0, "y": 90}, "front"
    )
    assert sorted(result, key=lambda name: -result[name]) == ["db", "cart", "front"]


def test_scores_are_added_in_the_order_of_names_so_that_they_are_the_same_in_every_process():
    names = [f"service-{number}" for number in range(40)]
    ill = {name: 1.1**number for number, name in enumerate(names)}
    calls = [(caller, callee) for caller, callee in itertools.pairwise(names)]
    result = count_explained(calls, ill, names[0])
    assert result[names[-1]] == sum(float(np.log1p(ill[name])) for name in sorted(names))


def test_the_descent_ends_where_no_callee_is_anomalous_and_cycles_end() -> None:
    calls = (("f", "a"), ("a", "b"), ("b", "a"), ("f", "c"))
    assert find_path_ends(calls, "f", {"f": 4.0, "c": 4.0}) == ("c",)
    assert find_path_ends(calls, "f", {"c": 4.0}) == ()
    assert find_path_ends(calls, "f", {"f": 4.0, "a": 4.0, "b": 4.0}) == ()


def test_microscope_abstains_if_the_front_end_is_healthy() -> None:
    episode = spoken(spans=conversation(), calls=(("front", "cart"), ("cart", "db")))
    assert Microscope().localize(episode, START + 30 * SECOND).abstains
