"""The choice between Redis and the stores' own servers."""

from __future__ import annotations

import pytest

from faultset.collector.apps import load_app
from faultset.collector.faults.registry import get_fault
from faultset.collector.plans.campaign_plans import campaign_id, plan_campaign
from faultset.collector.plans.chosen_stores import check_stores, original_servers, store_servers, with_stores
from faultset.collector.plans.fault_choice import unavailable_reason
from faultset.collector.plans.plan import Plan
from faultset.collector.plans.requests import make_request
from faultset.collector.platforms.local.host import LocalHost
from faultset.collector.runtime.stores import ORIGINAL_DRIVERS
from faultset.collector.spec.app import parse_store_choice
from faultset.core.errors import DataError, UsageError


def test_redis_changes_nothing_of_an_application() -> None:
    app = load_app("hotel")
    assert with_stores(app, None) is app
    assert with_stores(app, "redis") is app


def test_original_stores_take_the_place_where_there_is_a_driver_and_nowhere_else() -> None:
    hotel, shop = (with_stores(load_app(name), "original") for name in ("hotel", "astronomy"))
    assert hotel.services["memcached-rate"].program == ("faultset-store", "original-memcached")
    assert hotel.services["mongodb-geo"].program == ("faultset-store", "mongodb", "--auth")
    assert shop.services["postgresql"].program == ("faultset-store", "original-postgresql", "--auth")
    assert shop.services["kafka"].program == ("faultset-store", "kafka")
    assert shop.services["valkey-cart"].program == ("faultset-store", "valkey")


def test_an_unknown_choice_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="original"):
        parse_store_choice("orignal", ORIGINAL_DRIVERS)
    with pytest.raises(UsageError, match="postgresql"):
        make_request(faults=["noop"], apps=["astronomy"], profile="quick", stores="memcached,postgres")


def test_servers_of_some_kinds_leave_redis_in_the_place_of_the_others() -> None:
    shop = with_stores(load_app("astronomy"), parse_store_choice("postgresql", ORIGINAL_DRIVERS))
    assert shop.services["postgresql"].store_driver == "original-postgresql"
    assert shop.services["kafka"].store_driver == "kafka"
    options = {"faults": ["noop"], "apps": ["astronomy"], "profile": "quick"}
    some, same, original = (
        make_request(**options, stores=text) for text in ("postgresql,memcached", "memcached, postgresql", "original")
    )
    assert some == same == original
    plan, *_ = plan_campaign(make_request(**options, stores="postgresql"))
    assert Plan.from_json(plan.to_json()).stores == "postgresql"


@pytest.mark.parametrize("text", ["", "Memcached", "memcached;postgresql", "memcached,"])
def test_a_plan_with_a_choice_of_another_form_is_refused(text: str) -> None:
    (plan, *_) = plan_campaign(make_request(faults=["noop"], apps=["hotel"], profile="quick", stores="original"))
    with pytest.raises(DataError, match="stores"):
        Plan.from_json(plan.to_json().replace('"stores": "original"', f'"stores": "{text}"'))


def test_the_choice_is_in_the_plans_and_makes_another_campaign() -> None:
    options = {"faults": ["slow-store"], "apps": ["hotel"], "profile": "quick"}
    usual, asked = make_request(**options), make_request(**options, stores="original")
    assert make_request(**options, stores="redis") == usual
    assert campaign_id(usual) != campaign_id(asked)
    plans = plan_campaign(asked)
    assert {plan.stores for plan in plans} == {"original"}
    assert Plan.from_json(plans[0].to_json()) == plans[0]
    assert plan_campaign(usual)[0].stores is None


def test_a_platform_that_runs_redis_only_refuses_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalHost, "original_store_kinds", frozenset())
    with pytest.raises(UsageError, match="platform local runs only Redis"):
        make_request(faults=["noop"], apps=["hotel"], profile="quick", stores="original")


def test_faults_leave_stores_out_that_cannot_have_them() -> None:
    usual, original = load_app("hotel"), with_stores(load_app("hotel"), "original")
    for fault in ("locked-store", "heavy-query", "read-only-account", "store-memory-limit"):
        spec = get_fault(fault)
        left_out = set(spec.targets(usual)) - set(spec.targets(original))
        assert all(name.startswith("memcached") for name in left_out)
        assert not {name for name in spec.targets(original) if name.startswith("memcached")}
    assert "memcached-rate" in get_fault("connection-limit").targets(original)


def test_a_fault_without_a_possible_target_names_the_original_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    app = with_stores(load_app("astronomy"), "original")
    for driver in ORIGINAL_DRIVERS.values():
        monkeypatch.setattr(type(driver), "capabilities", frozenset())
    assert (
        unavailable_reason(get_fault("volume-full"), app)
        == "has no possible target in astronomy with stores of the kinds original-postgresql"
    )


def test_what_redis_plays_all_the_same_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for driver in ORIGINAL_DRIVERS.values():
        monkeypatch.setattr(type(driver), "check", lambda self: None)
        monkeypatch.setattr(type(driver), "version", lambda self: f"{self.role} 1.2")
    app, other = (with_stores(load_app(name), "original") for name in ("hotel", "tidb"))
    (sentence,) = check_stores(LocalHost(), [app, other])
    assert "mongodb and rocksdb" in sentence
    assert "memcached" not in sentence
    servers = store_servers(app, original_servers(LocalHost(), app))
    assert servers["memcached-rate"] == "memcached 1.2"
    assert servers["mongodb-geo"] == "redis"


def test_a_missing_client_library_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"needs the Python package asyncpg .* install faultset\[stores\]"):
        ORIGINAL_DRIVERS["postgresql"].check()
