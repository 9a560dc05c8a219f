"""The choice between Redis and the stores' own servers."""

from __future__ import annotations

import pytest

from faultset.collector.apps import load_app
from faultset.collector.faults.registry import get_fault
from faultset.collector.plans.campaign_plans import campaign_id, plan_campaign
from faultset.collector.plans.chosen_stores import check_stores, original_servers, store_servers, with_stores
from faultset.collector.plans.fault_selection import unavailable_reason
from faultset.collector.plans.plan import Plan
from faultset.collector.plans.requests import make_request
from faultset.collector.platforms.local.host import LocalHost
from faultset.collector.runtime.stores.drivers import (
    ORIGINAL_KINDS,
    STORE_DRIVERS,
    original_drivers,
    preferred_originals,
)
from faultset.collector.runtime.stores.originals.driver import OriginalDriver
from faultset.collector.runtime.stores.originals.mongodb import OriginalMongoDriver
from faultset.collector.spec.store_choices import parse_store_choice
from faultset.core.errors import DataError, PlatformError, UsageError


def test_redis_changes_nothing_of_an_application() -> None:
    app = load_app("hotel")
    assert with_stores(app, None) is app
    assert with_stores(app, "redis") is app


def test_original_stores_take_the_place_where_there_is_a_driver_and_nowhere_else() -> None:
    hotel, shop = (with_stores(load_app(name), "original") for name in ("hotel", "astronomy"))
    assert hotel.services["memcached-rate"].program == ("faultset-store", "original-memcached")
    assert hotel.services["mongodb-geo"].program == ("faultset-store", original_drivers()["mongodb"].name, "--auth")
    assert shop.services["postgresql"].program == ("faultset-store", "original-postgresql", "--auth")
    assert shop.services["kafka"].program == ("faultset-store", "original-kafka")
    assert shop.services["valkey-cart"].program == ("faultset-store", "valkey")


def test_a_cluster_runs_only_servers_that_its_image_can_have() -> None:
    shop = with_stores(load_app("astronomy"), "original", "kubernetes")
    assert shop.services["postgresql"].program == ("faultset-store", "original-postgresql", "--auth")
    assert shop.services["kafka"] == load_app("astronomy").services["kafka"]


def test_a_store_that_starts_slowly_is_ready_when_it_takes_connections() -> None:
    usual, shop = load_app("astronomy"), with_stores(load_app("astronomy"), "original")
    assert usual.services["kafka"].readiness is None
    assert shop.services["kafka"].readiness is not None
    assert shop.services["postgresql"].readiness is None


def test_an_unknown_choice_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="original"):
        parse_store_choice("orignal", ORIGINAL_KINDS)
    with pytest.raises(UsageError, match="postgresql"):
        make_request(faults=["noop"], apps=["astronomy"], profile="quick", stores="memcached,postgres")


def test_servers_of_some_kinds_leave_redis_in_the_place_of_the_others() -> None:
    shop = with_stores(load_app("astronomy"), parse_store_choice("postgresql", ORIGINAL_KINDS))
    assert shop.services["postgresql"].store_driver == "original-postgresql"
    assert shop.services["kafka"].store_driver == "kafka"
    options = {"faults": ["noop"], "apps": ["astronomy"], "profile": "quick"}
    some, same = (make_request(**options, stores=text) for text in ("postgresql,memcached", "memcached, postgresql"))
    assert campaign_id(some) == campaign_id(same)
    assert make_request(**options, stores=",".join(ORIGINAL_KINDS)) == make_request(**options, stores="original")
    plan, *_ = plan_campaign(some)
    assert Plan.from_json(plan.to_json()).stores == "memcached,postgresql"


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
    assert "stores" not in plan_campaign(usual)[0].to_json()


def test_a_platform_that_runs_redis_only_refuses_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalHost, "original_store_kinds", frozenset())
    with pytest.raises(UsageError, match="platform local runs Redis"):
        make_request(faults=["noop"], apps=["hotel"], profile="quick", stores="original")


def test_faults_leave_stores_out_that_cannot_have_them() -> None:
    usual, original = load_app("hotel"), with_stores(load_app("hotel"), "original")
    for fault in ("locked-store", "heavy-query", "read-only-account", "store-memory-limit"):
        spec = get_fault(fault)
        left_out = set(spec.targets(usual)) - set(spec.targets(original))
        assert all(name.startswith(("memcached", "mongodb")) for name in left_out)
        assert not {name for name in spec.targets(original) if name.startswith("memcached")}
    assert "memcached-rate" in get_fault("connection-limit").targets(original)


@pytest.mark.parametrize(
    ("driver", "possible", "impossible"),
    [
        ("original-mongodb", {"revoke-auth", "read-only-account", "user-unregistered"}, {"volume-full"}),
        (
            "original-ferretdb",
            {"volume-full", "user-unregistered", "wrong-secret"},
            {"revoke-auth", "read-only-account"},
        ),
    ],
)
def test_mongodb_and_ferretdb_differ_in_the_faults_that_they_can_have(
    driver: str, possible: set[str], impossible: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = STORE_DRIVERS[driver]
    assert isinstance(chosen, OriginalDriver)
    monkeypatch.setitem(original_drivers(), "mongodb", chosen)
    app = with_stores(load_app("hotel"), "original")
    reasons = {name: unavailable_reason(get_fault(name), app) for name in possible | impossible}
    assert {name for name, reason in reasons.items() if not reason} == possible
    kinds = f"{driver} and original-memcached" if driver < "original-memcached" else f"original-memcached and {driver}"
    assert {reasons[name] for name in impossible} == {
        f"has no possible target in hotel with stores of the kinds {kinds}"
    }


def test_ferretdb_is_taken_where_mongodb_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    installed: set[str] = set()
    monkeypatch.setattr(
        "faultset.collector.runtime.stores.originals.driver.find_program",
        lambda name: f"/usr/bin/{name}" if name in installed else None,
    )
    found: list[str] = []
    for name in ("", "ferretdb", "mongod"):
        installed.add(name)
        found.append(preferred_originals()["mongodb"].name)
    assert found == ["original-mongodb", "original-ferretdb", "original-mongodb"]


def test_a_missing_server_of_mongodb_is_one_sentence_that_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faultset.collector.runtime.stores.originals.driver.find_program", lambda name: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    with pytest.raises(PlatformError, match=r"needs the program mongod for mongodb.* or FerretDB 1.24 \(ferretdb\)"):
        OriginalMongoDriver().check()


def test_what_redis_plays_all_the_same_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for driver in original_drivers().values():
        monkeypatch.setattr(type(driver), "check", lambda self: None)
        monkeypatch.setattr(type(driver), "version", lambda self: f"{self.role} 1.2")
    app, other = (with_stores(load_app(name), "original") for name in ("hotel", "tidb"))
    assert not check_stores(LocalHost(), [app])
    (sentence,) = check_stores(LocalHost(), [app, other])
    assert "rocksdb" in sentence
    servers = store_servers(app, original_servers(LocalHost(), app))
    assert servers["memcached-rate"] == "memcached 1.2"
    assert servers["mongodb-geo"] == "mongodb 1.2"


def test_a_missing_client_library_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"needs the Python package asyncpg .* install faultset\[stores\]"):
        original_drivers()["postgresql"].check()
