"""The store drivers by name."""

from __future__ import annotations

from collections.abc import Iterable

from faultset.collector.runtime.stores.driver import StoreDriver
from faultset.collector.runtime.stores.originals.driver import OriginalDriver
from faultset.collector.runtime.stores.originals.memcached import OriginalMemcachedDriver
from faultset.collector.runtime.stores.originals.postgresql import OriginalPostgresDriver
from faultset.collector.runtime.stores.redis_driver import REDIS_DRIVERS
from faultset.core.suggestions import unknown_name

STORE_DRIVERS: dict[str, StoreDriver] = {
    driver.name: driver for driver in (*REDIS_DRIVERS, OriginalMemcachedDriver(), OriginalPostgresDriver())
}

ORIGINAL_DRIVERS: dict[str, OriginalDriver] = {
    driver.role: driver for driver in STORE_DRIVERS.values() if isinstance(driver, OriginalDriver)
}
"""The drivers of original servers by the kind of store that they run."""


def original_versions(names: Iterable[str]) -> dict[str, str]:
    """Return name and version of the server of each of some drivers of original servers.

    Raises
    ------
    PlatformError
        A server is not installed here.
    UsageError
        A Python package is missing.
    """
    versions: dict[str, str] = {}
    for name in names:
        driver = STORE_DRIVERS[name]
        assert isinstance(driver, OriginalDriver)
        driver.check()
        versions[name] = driver.version()
    return versions


def store_driver(name: str) -> StoreDriver:
    """Return the driver of that name; raise UsageError, with the nearest name, when there is none."""
    if name not in STORE_DRIVERS:
        raise unknown_name("store driver", name, STORE_DRIVERS)
    return STORE_DRIVERS[name]
