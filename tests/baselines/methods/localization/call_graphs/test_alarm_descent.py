"""The descent from the alarm: blame goes down the calls to what explains the symptom; nearer ones are given more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from faultset.baselines.methods.localization.call_graphs.alarm_descent import UNREACHED, AlarmDescent, divided_blame
from faultset.datasets.dataset import open_dataset
from faultset.datasets.examples import write_example_dataset
from faultset.datasets.format.labels import AlarmPlace
from faultset.datasets.views import EpisodeView
from faultset.evaluators.results.truth import Truth, truth_of


def order(found: dict[str, float]) -> list[str]:
    return sorted(found, key=lambda name: -found[name])


def test_all_blame_is_divided_and_none_is_lost():
    calls = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "a"), ("c", "b")]
    found = divided_blame(calls, {"a": 5.0, "b": 3.0, "c": 2.0, "d": 4.0, "e": 9.0}, "a")
    assert sum(found.values()) == pytest.approx(1.0)
    assert "e" not in found


def test_with_equal_symptoms_the_nearer_of_two_ends_is_blamed_more():
    calls = [("front", "near"), ("front", "cart"), ("front", "mail"), ("cart", "far"), ("cart", "ads")]
    found = divided_blame(calls, dict.fromkeys(("front", "near", "cart", "mail", "far", "ads"), 3.0), "front")
    assert found["near"] == found["mail"] > found["far"] == found["ads"] > found["cart"] == found["front"] == 0.0


def test_who_explains_more_ill_callers_is_blamed_more():
    calls = [("front", "cart"), ("front", "ads"), ("mail", "cart")]
    found = divided_blame(calls, dict.fromkeys(("front", "cart", "ads", "mail"), 3.0), "front")
    assert found["cart"] == 2 * found["ads"]
    calm = divided_blame(calls, dict.fromkeys(("front", "cart", "ads"), 3.0), "front")
    assert calm["cart"] == calm["ads"]


def test_a_symptom_that_no_callee_shows_is_the_services_own():
    assert divided_blame([("front", "cart")], {"front": 3.0}, "front") == {"front": 1.0}
    found = divided_blame([("front", "cart")], {"front": 9.0, "cart": 1.0}, "front")
    assert order(found) == ["front", "cart"]


def test_calls_in_a_circle_end():
    found = divided_blame([("a", "b"), ("b", "a"), ("b", "c"), ("c", "b"), ("a", "a")], dict.fromkeys("abc", 2.0), "a")
    assert order(found)[0] == "c"
    assert sum(found.values()) == pytest.approx(1.0)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    """An episode with a fault."""
    root = tmp_path_factory.mktemp("data") / "shop"
    write_example_dataset(root, episodes=4, seed=1, baseline_s=40, fault_s=40)
    dataset = open_dataset(root)
    truths = [truth_of(dataset.label(episode), dataset.view(episode).context) for episode in dataset.episodes]
    truth = next(truth for truth in truths if truth.faulty)
    return dataset.path(truth.episode), truth


def ranked(slow: tuple[Path, Truth], place: AlarmPlace | None) -> dict[str, Any]:
    path, truth = slow
    assert truth.onset_ns is not None
    return dict(AlarmDescent().localize(EpisodeView(path, alarm_place=place), truth.onset_ns).scores)


def test_the_place_decides_where_the_descent_begins(slow: tuple[Path, Truth]):
    path, truth = slow
    front = EpisodeView(path).context.workload_entry
    (cause,) = truth.causes[0][:1]
    from_front = ranked(slow, AlarmPlace(service=front))
    assert order(from_front)[0] == cause
    # without a place it begins at the front end
    assert ranked(slow, None) == from_front
    # nothing is called from there that leads to the cause, so all the blame stays there
    leaf = next(s for s in sorted(truth.candidates) if s not in {a for a, _ in truth.calls} and s != cause)
    from_leaf = ranked(slow, AlarmPlace(service=leaf))
    assert order(from_leaf)[0] == leaf
    assert from_leaf[leaf] > 1 - 2 * UNREACHED > from_leaf.get(cause, 0.0)


def test_a_place_that_is_no_candidate_is_answered_by_nobody(slow: tuple[Path, Truth]):
    assert ranked(slow, AlarmPlace(service="elsewhere")) == {}


def test_the_metric_of_the_alarm_decides_which_symptom_is_followed(slow: tuple[Path, Truth]):
    path, _ = slow
    view = EpisodeView(path)
    front = view.context.workload_entry
    names = sorted(set(view.metrics().query("service == @front")["metric"].astype(str)))
    role = view.catalogue.role_of
    latency = next(name for name in names if role(name) == "latency")
    told = ranked(slow, AlarmPlace(service=front, metric=latency))
    assert told == ranked(slow, AlarmPlace(service=front, metric=latency[:-1] + "*"))
    # a metric that shows neither symptom leaves both open
    assert ranked(slow, AlarmPlace(service=front, metric="no-such-metric")) == ranked(slow, AlarmPlace(service=front))
