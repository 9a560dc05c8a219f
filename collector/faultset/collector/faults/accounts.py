"""Faults in the accounts and passwords with which services use stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.random import Generator

from faultset.collector.faults.deployments import trigger_restart
from faultset.collector.faults.registry import Parameters, fault
from faultset.collector.faults.stores import (
    administer,
    consumer_fails,
    find_service_failure,
    flush_caches,
    get_account,
    observe_consumers,
    observe_service,
    restart_consumers,
    store_state,
    stores_with_capability,
)
from faultset.collector.faults.targets import (
    list_consumed_brokers,
    list_consumer_names,
    list_databases_with_password,
    list_databases_without_password,
    list_written_stores,
)
from faultset.collector.platforms.base import Platform
from faultset.collector.runtime.stores.driver import (
    REMOVE_ACCOUNT,
    REQUIRE_PASSWORD,
    REVOKE_CONSUMING,
    REVOKE_RIGHTS,
    REVOKE_WRITING,
    AdminChange,
)
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.credentials import decoded, password_key, store_password_key


def _change_account(platform: Platform, target: str, change: AdminChange) -> dict[str, Any]:
    """Change the account with which services use a database, empty their caches and restart the services."""
    administer(platform, target, change)
    caches = flush_caches(platform, target)
    return {
        "account": get_account(platform.app, target),
        "flushed": caches,
        "restarted": restart_consumers(platform, target),
    }


_CONSUMERS_FAIL = {
    "system_level": "Application",
    "check": consumer_fails,
    "observe": observe_consumers,
    "check_sees": "events",
    "needs": ("exec", "runtime"),
}


@fault(
    "auth-missing",
    **_CONSUMERS_FAIL,
    fault_type="Misconfiguration",
    paper_number=1,
    targets=list_databases_without_password,
)
def auth_missing(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Require a new password for an account, then restart its consumers, which use the old one."""
    return _change_account(platform, target, REQUIRE_PASSWORD)


@fault(
    "revoke-auth",
    **_CONSUMERS_FAIL,
    fault_type="Authentication Issue",
    paper_number=3,
    targets=stores_with_capability("rights", list_databases_with_password),
    also_accepted=list_consumer_names,
)
def revoke_auth(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Revoke all rights of the database account, then restart its consumers."""
    return _change_account(platform, target, REVOKE_RIGHTS)


@fault(
    "user-unregistered",
    **_CONSUMERS_FAIL,
    fault_type="Network/Storage Issue",
    paper_number=4,
    targets=list_databases_with_password,
    also_accepted=list_consumer_names,
)
def user_unregistered(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Delete the account with which the database is used, then restart its consumers."""
    return _change_account(platform, target, REMOVE_ACCOUNT)


def stores_with_password(app: AppSpec, service: str) -> tuple[str, ...]:
    """Return the databases that a service uses with a password; can be used as `also_accepted`."""
    return tuple(store for store in app.stores(service) if store in list_databases_with_password(app))


def users_of_passwords(app: AppSpec) -> tuple[str, ...]:
    """Return the services that have a Deployment and log in to a database with a password."""
    return tuple(name for name in app.services if app.has_deployment(name) and stores_with_password(app, name))


@fault(
    "wrong-secret",
    system_level="Application",
    fault_type="Authentication Issue",
    targets=users_of_passwords,
    check=find_service_failure,
    observe=observe_service,
    check_sees="events",
    also_accepted=stores_with_password,
    needs=("exec", "secret", "runtime"),
)
def wrong_secret(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Remove the last character of a password in the Secret, and restart the pods that read it."""
    app = platform.app
    store = next(iter(stores_with_password(app, target)))
    trigger_restart(platform, target, recreate=True)
    location = password_key(app, store)
    password = decoded(platform.get("Secret", location.secret)["data"][location.key])
    platform.change_secret(location, password[:-1], copied_from=store_password_key(app, store))
    caches = flush_caches(platform, store)
    return {"secret": location.secret, "key": location.key, "flushed": caches}


def _lacks_rights(refusal: str) -> bool:
    return "permission" in refusal or "not authorized" in refusal


def refuses_writes(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """Check whether the store refuses a write because the account lacks the right."""
    refusal = store_state(platform, target).get("write_refused", "")
    return f"{target} refuses writes of {parameters['account']}: {refusal}" if _lacks_rights(refusal) else None


_RIGHTS = {"system_level": "Application", "fault_type": "Authentication Issue", "needs": ("exec", "runtime")}


@fault(
    "read-only-account", **_RIGHTS, targets=stores_with_capability("rights", list_written_stores), check=refuses_writes
)
def read_only_account(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Revoke the right to write from the account with which the application uses a store."""
    administer(platform, target, REVOKE_WRITING)
    return {"account": get_account(platform.app, target)}


def refuses_consumers(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """Check whether the broker refuses to give messages to the application's account."""
    refusal = store_state(platform, target).get("consume_refused", "")
    return f"{target} gives {parameters['account']} no messages: {refusal}" if refusal else None


@fault("consumer-stopped", **_RIGHTS, targets=list_consumed_brokers, check=refuses_consumers)
def consumer_stopped(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Revoke the right to consume from the application's account; it can still publish."""
    administer(platform, target, REVOKE_CONSUMING)
    return {"account": get_account(platform.app, target)}
