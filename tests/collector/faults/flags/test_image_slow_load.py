from __future__ import annotations

from faultset.collector.apps import load_app
from faultset.collector.faults.flags.image_slow_load import FLAG
from faultset.collector.faults.flags.settings import service_of_flag
from faultset.collector.spec.reachability import services_reached


def test_requests_for_images_reach_the_service_that_is_held_responsible_for_their_delay() -> None:
    app = load_app("astronomy")
    (target,) = service_of_flag(FLAG)(app)
    (reached,) = [services for endpoint, services in services_reached(app).items() if "/images/" in endpoint]
    assert target in reached
