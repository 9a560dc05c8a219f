"""Rules on object states, on small hand-made episodes."""

from __future__ import annotations

import pytest

from faultset.baselines.features.object_states import count_restarts, find_signs, read_specification
from faultset.baselines.methods.rules.state_rules import KubernetesState, LastChange, LastHarmfulChange, MostRestarts

SECOND = 1_000_000_000
HEALTHY = {"replicas": 1, "readyReplicas": 1, "availableReplicas": 1, "generation": 1, "image": "a:1"}


def steady(state: dict, until: int = 120, since: int = 0) -> list:
    return [(at, state) for at in range(since, until, 10)]


def test_a_service_scaled_to_zero_ranks_first(observe) -> None:
    down = HEALTHY | {"replicas": 0, "readyReplicas": 0, "availableReplicas": 0}
    view, alarm = observe({
        ("Deployment", "geo", "geo"): steady(HEALTHY, 70) + steady(down, since=70),
        ("Deployment", "rate", "rate"): steady(HEALTHY),
        ("Endpoints", "geo", "geo"): steady({"ready": 1}, 70) + steady({"ready": 0}, since=70),
    })  # fmt: skip
    ranking = KubernetesState().localize(view, alarm)
    assert ranking.ordered == ("geo",)
    assert {item.detail for item in ranking.evidence} == {"scaled to zero", "no endpoints"}


def test_a_short_rollout_counts_less_than_an_outage(observe) -> None:
    waiting = {"phase": "Pending", "ready": False, "containers": []}
    running = {"phase": "Running", "ready": True, "containers": []}
    view, alarm = observe({
        ("Pod", "geo-1", "geo"): steady(running, 70),
        ("Pod", "geo-2", "geo"): [(71, waiting), (72, running), *steady(running, since=80)],
        ("Pod", "rate-1", "rate"): steady(running, 70),
        ("Pod", "rate-2", "rate"): steady(waiting, since=70),
    })  # fmt: skip
    ranking = KubernetesState().localize(view, alarm)
    assert ranking.ordered == ("rate", "geo")
    assert ranking.pods["rate-2"] > 5 * ranking.pods["geo-2"] > 0
    assert ranking.pods.keys() == {"rate-2", "geo-2"}


def test_signs_of_the_reference_do_not_count(observe) -> None:
    odd = {"phase": "Running", "ready": False, "containers": []}
    view, alarm = observe({("Pod", "geo-1", "geo"): steady(odd)})
    assert KubernetesState().localize(view, alarm).abstains


def test_an_object_that_is_gone_is_a_sign_and_a_replaced_pod_is_not(observe) -> None:
    running = {"phase": "Running", "ready": True, "containers": []}
    view, alarm = observe({
        ("Service", "geo", "geo"): steady({"ports": [], "selector": {}}, 70),
        ("Pod", "rate-1", "rate"): steady(running, 70),
    })  # fmt: skip
    ranking = KubernetesState().localize(view, alarm)
    assert ranking.ordered == ("geo",)
    assert ranking.evidence[0].detail == "Service gone"


def crashed(count: int) -> dict:
    return {"phase": "Running", "containers": [{"name": "c", "restartCount": count}]}


def test_restarts_are_counted_since_the_reference(observe) -> None:
    view, alarm = observe({
        ("Pod", "geo-1", "geo"): steady(crashed(7), 60) + steady(crashed(9), since=60),
        ("Pod", "rate-1", "rate"): steady(crashed(30)),
        ("Pod", "profile-2", "profile"): steady(crashed(1), since=80),
    })  # fmt: skip
    ranking = MostRestarts().localize(view, alarm)
    assert dict(ranking.scores) == {"geo": 2, "profile": 1}
    assert dict(ranking.pods) == {"geo-1": 2, "profile-2": 1}


def test_the_latest_change_before_the_alarm_is_blamed(observe) -> None:
    view, alarm = observe(
        {
            ("Deployment", "geo", "geo"): steady(HEALTHY, 60) + steady(HEALTHY | {"image": "a:2"}, since=60),
            ("Deployment", "rate", "rate"): steady(HEALTHY, 80) + steady(HEALTHY | {"replicas": 2}, since=80),
            ("ConfigMap", "search", "search"): steady({"digest": "x"}, 50) + steady({"digest": "y"}, since=50),
            ("Deployment", "profile", "profile"): steady(HEALTHY, 65)
            + steady(HEALTHY | {"readyReplicas": 0}, since=65),
        },
        events=[(69, "ScalingReplicaSet", "recommendation"), (69, "BackOff", "frontend")],
    )
    ranking = LastChange().localize(view, alarm)
    assert ranking.ordered == ("recommendation", "geo", "search", "rate")
    assert ranking.evidence[1].subject == "Deployment/geo"


def test_changes_that_look_harmless_are_passed_over(observe) -> None:
    ready = {"phase": "Running", "ready": True, "containers": [{"state": "running", "restartCount": 0}]}
    waiting, image = ready | {"ready": False}, HEALTHY | {"image": "a:2"}
    view, alarm = observe(
        {
            ("Deployment", "search", "search"): steady(HEALTHY, 40) + steady(image, since=40),
            ("Deployment", "rate", "rate"): steady(HEALTHY, 50)
            + steady(HEALTHY | {"replicas": 2}, 60, since=50)
            + steady(HEALTHY, since=60),
            ("Deployment", "geo", "geo"): steady(HEALTHY, 65) + steady(HEALTHY | {"generation": 2}, since=65),
            ("Deployment", "profile", "profile"): steady(HEALTHY, 65) + steady(image, since=65),
            ("Pod", "profile-old", "profile"): steady(ready, 85),
            ("Pod", "profile-new", "profile"): [(66, waiting), (84, ready), *steady(ready, since=90)],
        },
        events=[(60, "ScalingReplicaSet", "rate"), (66, "ScalingReplicaSet", "profile"), (30, "Killing", "frontend")],
    )
    assert LastChange().localize(view, alarm).ordered == ("profile", "geo", "rate", "search", "frontend")
    assert LastHarmfulChange().localize(view, alarm).ordered == ("search", "frontend")


def test_without_changes_the_control_abstains(observe) -> None:
    view, alarm = observe({("Deployment", "geo", "geo"): steady(HEALTHY)})
    assert LastChange().localize(view, alarm).abstains


@pytest.mark.parametrize(
    ("kind", "state", "expected"),
    [
        ("Pod", {"phase": "Pending"}, {"pod Pending"}),
        ("Pod", {"phase": "Succeeded", "ready": False}, set()),
        ("Pod", {"phase": "Running", "ready": "False"}, {"pod not ready"}),
        ("Pod", {"containers": [{"state": "waiting", "reason": "CrashLoopBackOff"}]}, {"CrashLoopBackOff"}),
        ("Pod", {"containers": [{"state": "terminated", "exitCode": 2}]}, {"container ended with an error"}),
        ("Pod", {"containers": [{"state": "terminated", "exitCode": 0}]}, set()),
        ("Deployment", {"replicas": 2, "readyReplicas": 1}, {"replicas missing"}),
        ("Deployment", {"replicas": 2}, set()),
        ("Deployment", {}, set()),
        ("Endpoints", {"ready": 0}, {"no endpoints"}),
        ("Endpoints", {}, set()),
        ("PersistentVolumeClaim", {"phase": "Pending"}, {"claim Pending"}),
        ("PersistentVolume", {"phase": "Released"}, {"volume Released"}),
        ("Service", {"ports": []}, set()),
    ],
)
def test_signs_of_an_object(kind: str, state: dict, expected: set) -> None:
    assert find_signs(kind, state) == expected


def test_a_count_that_kubernetes_left_out_is_zero_where_it_was_there_before() -> None:
    expected = frozenset({"replicas", "readyReplicas", "ready"})
    assert find_signs("Deployment", {"replicas": 2}, expected) == {"replicas missing"}
    assert find_signs("Endpoints", {}, expected) == {"no endpoints"}


def test_status_is_not_specification() -> None:
    assert read_specification("Deployment", HEALTHY) == {"replicas": 1, "generation": 1, "image": "a:1"}
    assert read_specification("Pod", {"phase": "Running"}) is None


def test_restarts_tolerate_missing_fields() -> None:
    assert count_restarts({}) == 0
    assert count_restarts({"containers": [{}, {"restartCount": 2}, {"restartCount": None}]}) == 2
