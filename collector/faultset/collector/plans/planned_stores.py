"""The applications of plans with the stores that the plans ask for."""

from __future__ import annotations

from collections.abc import Iterable

from faultset.collector.apps import load_app
from faultset.collector.plans.plan import Plan
from faultset.collector.runtime.stores.chosen_servers import check_stores, with_stores
from faultset.collector.spec.app import AppSpec


def planned_app(plan: Plan) -> AppSpec:
    """Return the application of a plan."""
    return with_stores(load_app(plan.app_file or plan.app), plan.stores)


def check_planned_stores(plans: Iterable[Plan]) -> list[str]:
    """See whether the original servers that plans ask for can run here; return what is to be said of other stores.

    Raises
    ------
    UsageError
        A Python package is missing.
    PlatformError
        A server is missing.
    """
    asked = {(plan.app_file or plan.app, plan.stores): plan for plan in plans if plan.stores is not None}
    return check_stores([planned_app(plan) for plan in asked.values()])
