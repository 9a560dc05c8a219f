"""Manifests made fit for a cluster."""

from __future__ import annotations

from faultset.collector.apps import load_app
from faultset.collector.platforms.kubernetes.workloads.cluster_manifests import placed, with_repository
from faultset.collector.spec.manifests import manifests

HOTEL = load_app("hotel")


def test_programs_run_as_an_ordinary_user_but_for_databases_which_own_their_volume() -> None:
    made = placed(
        manifests(HOTEL, telemetry_endpoint="http://t"), HOTEL, "hotel-1", repository="r.example/faultset/app"
    )
    pods = {d["metadata"]["name"]: d["spec"]["template"]["spec"] for d in made if d["kind"] == "Deployment"}
    as_root = {name for name, spec in pods.items() if "securityContext" not in spec}
    assert as_root == {name for name, service in HOTEL.services.items() if service.claim}
    assert {spec["containers"][0]["image"] for spec in pods.values()} == {"r.example/faultset/app:1.0.0"}


def test_images_of_ours_come_from_the_users_repository_and_others_stay() -> None:
    assert with_repository("faultset/app:1.0.2", "r.example/x/app") == "r.example/x/app:1.0.2"
    assert with_repository("faultset/pause:3.9", "r.example/x/app") == "r.example/x/pause:3.9"
    assert with_repository("nginx:1", "r.example/x/app") == "nginx:1"
