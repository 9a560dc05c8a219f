"""The application of a plan: its stores, memory use and background errors."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from faultset.collector.apps import load_app
from faultset.collector.faults.registry import get_fault
from faultset.collector.load.schedule import Schedule
from faultset.collector.plans.campaign_plans import campaign_id, plan_campaign
from faultset.collector.plans.fault_choice import unavailable_reason
from faultset.collector.plans.plan import Plan
from faultset.collector.plans.planned_app import (
    check_stores,
    original_servers,
    planned_app,
    store_servers,
    with_heaps,
    with_stores,
)
from faultset.collector.plans.requests import make_request
from faultset.collector.platforms.local.host import LocalHost
from faultset.collector.runtime.background import Heap
from faultset.collector.runtime.signals import Metrics
from faultset.collector.runtime.stores import ORIGINAL_DRIVERS
from faultset.collector.spec.app import parse_store_choice
from faultset.collector.spec.features import BackgroundErrors, HeapUse, Language
from faultset.collector.verdicts.client_requests import ComparisonWindows, client_impact, unsteady_reason
from faultset.core.errors import DataError, UsageError
from faultset.core.times import SECOND_NS


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


APPS = ["astronomy", "hotel", "social", "tidb"]
PLANS = plan_campaign(make_request(faults=["pod-kill"], apps=APPS, profile="quick", repeat=3))


def plans_of(app: str) -> list[Plan]:
    return [plan for plan in PLANS if plan.app == app]


@pytest.mark.parametrize("app", APPS)
def test_every_episode_has_background_errors_at_rates_of_its_own(app: str) -> None:
    rates = [planned_app(plan).background_errors for plan in plans_of(app)]
    assert len({one.unknown_paths for one in rates}) == len(rates)
    for one in rates:
        assert min(one.unknown_paths, one.impatient_clients) > 0
        assert min(one.failed_uploads, one.slow_phases, one.unhealthy_answers) > 0
        assert one.unknown_paths + one.impatient_clients < 0.02


@pytest.mark.parametrize("app", APPS)
def test_the_fault_has_no_influence_on_background_errors(app: str) -> None:
    plan = next(plan for plan in plans_of(app) if plan.fault)
    faulty, healthy = (
        planned_app(one) for one in (plan, replace(plan, fault=None, target=None, no_fault_kind="plain"))
    )
    assert faulty == healthy
    assert faulty.variation == healthy.variation


@pytest.mark.parametrize("app", APPS)
def test_some_services_of_an_application_have_probes_that_fail_now_and_then(app: str) -> None:
    counts = [
        sum(service.readiness is not None and service.readiness.path == "/healthz" for service in services.values())
        for services in (planned_app(plan).services for plan in plans_of(app))
    ]
    assert sum(counts) > 0
    assert len(set(counts)) > 1


def test_clients_ask_for_unknown_paths_and_give_up_at_the_given_rates() -> None:
    rates = BackgroundErrors(unknown_paths=0.1, impatient_clients=0.05)
    app = planned_app(PLANS[0]).model_copy(update={"background_errors": rates})
    schedule = Schedule(app, app.default_mix, 0)
    requests = [schedule.next() for _ in range(4000)]
    unknown = [request for request in requests if request.path.endswith("/v0/index.php")]
    impatient = [request.patience_s for request in requests if request.patience_s is not None]
    assert 330 < len(unknown) < 470
    assert 150 < len(impatient) < 250
    assert max(impatient) <= 0.01


def test_background_errors_leave_the_requests_of_a_seed_as_they_were() -> None:
    app = planned_app(PLANS[0])
    quiet = app.model_copy(update={"background_errors": BackgroundErrors()})
    one, other = (Schedule(app, app.default_mix, 5) for app in (app, quiet))
    for _ in range(100):
        first, second = one.next(), other.next()
        assert (first.gap, first.kind, first.parameters) == (second.gap, second.kind, second.parameters)


def requests_with_errors(share: float, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    times_s = np.cumsum(rng.exponential(1 / 20, 1800))
    is_error = rng.random(len(times_s)) < share
    values: dict[str, Any] = {
        "scheduled": pd.to_datetime((times_s * SECOND_NS).astype("int64"), utc=True),
        "endpoint": rng.choice(["GET /a", "GET /b", "POST /c"], len(times_s)),
        "latency_ns": pd.array((rng.lognormal(2.5, 0.4, len(times_s)) * 1e6).astype("int64"), dtype="Int64"),
        "status": pd.array(np.where(is_error, 404, 200), dtype="Int32"),
        "outcome": np.where(is_error, "http_error", "ok"),
    }
    return pd.DataFrame(values)


def test_clients_do_not_feel_background_errors() -> None:
    windows = ComparisonWindows(
        start_ns=0, reference_end_ns=36 * SECOND_NS, onset_ns=45 * SECOND_NS, end_ns=90 * SECOND_NS
    )
    impacts = [client_impact(requests_with_errors(0.018, seed), None, windows) for seed in range(50)]
    assert not any(impact.is_manifest for impact in impacts)
    assert sum(unsteady_reason(impact.earlier_changes) != "" for impact in impacts) <= 1


@pytest.mark.parametrize("name", APPS)
def test_services_differ_in_memory_and_all_together_take_less_than_a_gigabyte(name: str) -> None:
    apps = [with_heaps(load_app(name), seed) for seed in range(20)]
    sizes = np.array([[s.heap.live_mib for s in app.services.values() if s.heap] for app in apps])
    assert sizes[0].max() > 3 * sizes[0].min()
    assert (sizes.max(axis=0) < 1.25 * sizes.min(axis=0)).all()
    for app in apps:
        heaps = [(s.heap, s.replicas) for s in app.services.values() if s.heap]
        assert sum((heap.live_mib + heap.garbage_mib) * replicas for heap, replicas in heaps) < 1000
        for service in app.services.values():
            if service.heap:
                assert 70 + service.heap.live_mib + service.heap.garbage_mib < 0.9 * service.memory_limit_mib


METRICS: dict[Language, str] = {
    "go": "go_memstats_heap_inuse_bytes",
    "jvm": 'jvm_memory_used_bytes{area="heap"}',
    "nodejs": "nodejs_heap_size_used_bytes",
}


@pytest.mark.parametrize("language", METRICS)
def test_a_heap_grows_with_requests_and_is_collected_and_metrics_show_it(language: Language) -> None:
    metrics = Metrics()
    heap = Heap(HeapUse(live_mib=40, garbage_mib=8, request_kib=512), metrics, language)
    used = [heap.used_bytes / 2**20]
    for _ in range(2100):
        heap.allocate()
        used.append(heap.used_bytes / 2**20)
    assert 20 < used[0] < 28
    assert 39 <= min(used[-50:]) < max(used[-50:]) <= 49
    values = dict(line.rsplit(" ", 1) for line in metrics.exposition().decode().splitlines() if line[0] != "#")
    assert float(values[METRICS[language]]) == heap.used_bytes


def test_a_heap_takes_real_memory() -> None:
    code = """
from faultset.collector.runtime.background import Heap
from faultset.collector.runtime.signals import Metrics
from faultset.collector.spec.features import HeapUse

def resident_mib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20

before = resident_mib()
heap = Heap(HeapUse(live_mib=100, garbage_mib=8, request_kib=0), Metrics(), None)
print(resident_mib() - before)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 55 < float(run.stdout) < 70
