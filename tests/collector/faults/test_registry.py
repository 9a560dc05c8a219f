"""Declarations of faults, their registry and their targets."""

from __future__ import annotations

import pytest

from faultset.collector.apps import load_app
from faultset.collector.faults.registry import fault, faults
from faultset.collector.spec.routes import services_reached


def test_a_second_fault_of_a_name_is_refused_with_both_owners() -> None:
    assert "target-port" in faults()
    with pytest.raises(ValueError, match=r"target_port, line \d+ and in .*test_registry"):

        @fault(
            "target-port",
            system_level="Virtualization",
            fault_type="Misconfiguration",
            targets=lambda app: (),
            check=lambda platform, target, parameters, before: None,
        )
        def another(platform, target, rng):
            """Never."""
            return {}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"system_level": "App"}, 'system_level "App"; use Hardware, Operating System'),
        ({"fault_type": "Bug"}, 'fault_type "Bug"; use Misconfiguration'),
        ({"schedules": ("odd",)}, 'schedules "odd"; use constant, gradual'),
        ({"category": "odd"}, 'category "odd"; use functional, symptomatic'),
        ({"check": lambda platform, target, parameters: None}, "must take the arguments"),
        ({"root_cause": lambda app: None}, r"the root_cause of fault never must take the arguments \(app, target\)"),
    ],
)
def test_a_definition_with_a_wrong_value_is_refused_with_one_sentence(changes: dict, sentence: str) -> None:
    given = {"system_level": "Virtualization", "fault_type": "Misconfiguration", "targets": lambda app: ()}
    given |= {"check": lambda platform, target, parameters, before: None}
    with pytest.raises(ValueError, match=sentence):
        fault("never", **{**given, **changes})(lambda platform, target, rng: {})


def test_the_root_cause_is_the_target_or_the_object_that_the_fault_names() -> None:
    app = load_app("tidb")
    assert faults()["target-port"].object_at_fault(app, "pd") == ("Service", "pd")
    assert faults()["overload-replicas"].object_at_fault(app, "tidb") == ("TidbCluster", "basic")
    assert faults()["overload-replicas"].also_accepted(app, "tidb") == ("tidbclusters",)


def test_a_fault_that_follows_schedules_must_take_a_course() -> None:
    with pytest.raises(ValueError, match=r"fault slow-pipe must take the arguments \(platform, target, rng, course\)"):

        @fault(
            "slow-pipe",
            system_level="Virtualization",
            fault_type="Misconfiguration",
            targets=lambda app: (),
            check=lambda platform, target, parameters, before: None,
            schedules=("gradual",),
        )
        def slow_pipe(platform, target, rng):
            """Never."""
            return {}


def test_a_store_at_fault_is_found_by_naming_who_uses_it_only_where_the_cause_is_shared() -> None:
    shared = set()
    for app in map(load_app, ("hotel", "social", "astronomy")):
        stores = {name for name, service in app.services.items() if service.store_driver is not None}
        for name, spec in faults().items():
            accepted = {
                other for target in spec.targets(app) if target in stores for other in spec.also_accepted(app, target)
            }
            shared |= {name} if accepted - stores else set()
    assert shared == {"revoke-auth", "user-unregistered", "poison-message"}


def test_services_without_a_port_are_no_targets_of_faults_of_services() -> None:
    shop = load_app("astronomy-shop")
    assert {name for name in ("target-port", "wrong-selector") if "accounting" in faults()[name].targets(shop)} == set()
    assert "accounting" in faults()["scale-to-zero"].targets(shop)


def test_a_cache_that_no_step_uses_is_no_target_of_network_faults() -> None:
    targets = faults()["bandwidth-limit"].targets(load_app("social"))
    assert "url-shorten-memcached" not in targets
    assert {"user-memcached", "post-storage-memcached", "home-timeline-redis"} <= set(targets)


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
