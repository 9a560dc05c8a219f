"""Which services faults can be applied to."""

from __future__ import annotations

from faultset.collector.apps import load_app
from faultset.collector.faults.registry import faults


def test_services_without_a_port_are_no_targets_of_faults_of_services() -> None:
    shop = load_app("astronomy-shop")
    assert {name for name in ("target-port", "wrong-selector") if "accounting" in faults()[name].targets(shop)} == set()
    assert "accounting" in faults()["scale-to-zero"].targets(shop)


def test_a_cache_that_no_step_uses_is_no_target_of_network_faults() -> None:
    targets = faults()["bandwidth-limit"].targets(load_app("social"))
    assert "url-shorten-memcached" not in targets
    assert {"user-memcached", "post-storage-memcached", "home-timeline-redis"} <= set(targets)
