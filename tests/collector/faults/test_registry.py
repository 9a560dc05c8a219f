"""Definitions of faults: what is refused, in one sentence."""

from __future__ import annotations

import pytest

from faultset.collector.apps import load_app
from faultset.collector.faults.registry import fault, faults


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
