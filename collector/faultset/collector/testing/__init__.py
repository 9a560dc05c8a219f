"""Checks that a package which extends the collector runs from its own tests; one module for each kind of extension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faultset.collector.testing.app import check_app
    from faultset.collector.testing.fault import check_fault
    from faultset.collector.testing.load_driver import check_load_driver
    from faultset.collector.testing.platform import check_host, check_platform
    from faultset.collector.testing.source import check_source

__all__ = ["check_app", "check_fault", "check_host", "check_load_driver", "check_platform", "check_source"]

_MODULES = {
    "check_app": "app",
    "check_fault": "fault",
    "check_load_driver": "load_driver",
    "check_host": "platform",
    "check_platform": "platform",
    "check_source": "source",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
