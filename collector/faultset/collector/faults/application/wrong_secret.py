"""A credential that is wrong in the Secret from which a service reads it."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.deployments import order_restart
from faultset.collector.faults.registry import fault
from faultset.collector.faults.stores import flush_caches, service_before, service_fails
from faultset.collector.faults.targets import databases_with_password
from faultset.collector.platforms.api.capabilities import SecretEditor, require
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.credentials import decoded, password_key, store_password_key


def stores_with_password(app: AppSpec, service: str) -> tuple[str, ...]:
    """Return the databases into which a service logs in with a password; for `also_accepted` too."""
    return tuple(store for store in app.stores(service) if store in databases_with_password(app))


def users_of_passwords(app: AppSpec) -> tuple[str, ...]:
    """Return the services with a Deployment of their own that log in to a database with a password."""
    return tuple(name for name in app.services if app.has_deployment(name) and stores_with_password(app, name))


@fault(
    "wrong-secret",
    system_level="Application",
    fault_type="Authentication Issue",
    targets=users_of_passwords,
    check=service_fails,
    observe=service_before,
    check_sees="events",
    also_accepted=stores_with_password,
    needs=("exec", "secret", "runtime"),
)
def wrong_secret(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Leave out the last character of a password in the Secret, and restart the pods that read it."""
    app = platform.app
    store = next(iter(stores_with_password(app, target)))
    order_restart(platform, target, recreate=True)
    used = password_key(app, store)
    password = decoded(platform.get("Secret", used.secret)["data"][used.key])
    require(platform, SecretEditor).change_secret(used, password[:-1], copied_from=store_password_key(app, store))
    caches = flush_caches(platform, store)
    return {"secret": used.secret, "key": used.key, "flushed": caches}
