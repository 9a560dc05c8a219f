"""Contract checks for extensions of the collector, to call from their own tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faultset.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from faultset.collector.testing.app import check_app, check_load_driver
    from faultset.collector.testing.fault import check_fault
    from faultset.collector.testing.platform import check_host, check_platform, check_source

__all__ = ["check_app", "check_fault", "check_host", "check_load_driver", "check_platform", "check_source"]

__getattr__, __dir__ = lazy_names(__name__)
