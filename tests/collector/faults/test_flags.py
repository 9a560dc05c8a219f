"""Faults of feature flags."""

from __future__ import annotations

from faultset.collector.apps import load_app
from faultset.collector.faults.registry import faults
from faultset.collector.spec.routes import services_reached


def test_requests_for_images_reach_the_service_that_is_held_responsible_for_their_delay() -> None:
    app = load_app("astronomy")
    (target,) = faults()["image-slow-load"].targets(app)
    (reached,) = [services for endpoint, services in services_reached(app).items() if "/images/" in endpoint]
    assert target in reached


def test_every_flag_of_an_application_has_a_fault_on_the_service_that_it_names() -> None:
    app = load_app("astronomy")
    assert app.flags is not None
    specs = [spec for spec in faults().values() if spec.inject.__module__.endswith(".flags")]
    assert sorted(spec.targets(app)[0] for spec in specs) == sorted(flag.service for flag in app.flags.flags.values())
