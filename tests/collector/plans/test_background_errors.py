"""Errors of healthy systems: drawn per application and episode, and not taken for a fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from faultset.collector.load.schedule import Schedule
from faultset.collector.plans.campaign_plans import plan_campaign
from faultset.collector.plans.chosen_stores import planned_app
from faultset.collector.plans.plan import Plan
from faultset.collector.plans.requests import make_request
from faultset.collector.spec.features import BackgroundErrors
from faultset.collector.verdicts.client_requests import ComparisonWindows, client_impact, unsteady_reason
from faultset.core.times import SECOND_NS

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
