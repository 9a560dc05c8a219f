"""What a run looked at is read from its calls and observations."""

from __future__ import annotations

from faultset.agents.runs.looks import look_of
from faultset.agents.trajectories.model import Trajectory
from faultset.agents.trajectories.writing import TrajectoryWriter

SERVICES = ("geo", "mongodb-geo", "rate")


def trajectory(*steps: tuple[str, dict[str, str], str]) -> Trajectory:
    writer = TrajectoryWriter("a")
    writer.said("user", "look at geo")
    for name, arguments, result in steps:
        writer.acted("", calls=[(name, arguments)], results=[result])
    return writer.trajectory()


def test_calls_are_counted_without_the_submission() -> None:
    look = look_of(
        trajectory(("kubectl", {}, ""), ("kubectl", {}, ""), ("submit_all", {"services": "geo"}, "")), SERVICES
    )
    assert look.calls == {"kubectl": 2}
    assert not look.asked


def test_a_pod_is_its_service_and_a_longer_name_is_not_a_shorter_one() -> None:
    look = look_of(
        trajectory(
            ("kubectl", {"command": "kubectl logs mongodb-geo-66bd4f866d-8tfk5"}, "rate-66bd4f866d-8tfk5 failed")
        ),
        SERVICES,
    )
    assert (look.asked, look.shown) == ({"mongodb-geo"}, {"rate"})


def test_a_list_of_all_services_shows_none() -> None:
    look = look_of(trajectory(("describe_system", {}, "geo, mongodb-geo, rate")), SERVICES)
    assert look.shown == frozenset()


def test_no_candidates_and_text_of_any_length_are_read() -> None:
    assert look_of(trajectory(("kubectl", {"c": "geo"}, "x" * 420_000)), ()).asked == frozenset()
