"""The stores of an application: their drivers by name."""

from __future__ import annotations

from collections.abc import Iterable

from faultset.collector.runtime.stores.driver import StoreDriver
from faultset.collector.runtime.stores.memcached import OriginalMemcachedDriver
from faultset.collector.runtime.stores.original_driver import OriginalDriver
from faultset.collector.runtime.stores.postgresql import OriginalPostgresDriver
from faultset.collector.runtime.stores.redis_driver import REDIS_DRIVERS
from faultset.core.errors import unknown_name

STORE_DRIVERS: dict[str, StoreDriver] = {
    driver.name: driver for driver in (*REDIS_DRIVERS, OriginalMemcachedDriver(), OriginalPostgresDriver())
}

ORIGINAL_DRIVERS: dict[str, OriginalDriver] = {
    driver.role: driver for driver in STORE_DRIVERS.values() if isinstance(driver, OriginalDriver)
}
"""Drivers by role, which run the original server, such as memcached, instead of Redis."""


def read_original_versions(names: Iterable[str]) -> dict[str, str]:
    """Return the name and version of the installed server of each driver.

    Raises
    ------
    PlatformError, UsageError
        A server, or the Python package of a client, is not installed.
    """
    versions: dict[str, str] = {}
    for name in names:
        driver = STORE_DRIVERS[name]
        assert isinstance(driver, OriginalDriver)
        driver.check()
        versions[name] = driver.version()
    return versions


def store_driver(name: str) -> StoreDriver:
    """Return a driver by name; raise UsageError, which suggests a similar name, if it does not exist."""
    if name not in STORE_DRIVERS:
        raise unknown_name("store driver", name, STORE_DRIVERS)
    return STORE_DRIVERS[name]
