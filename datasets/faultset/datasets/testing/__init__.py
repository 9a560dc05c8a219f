"""Check importers and exporters in the tests of the distributions that provide them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faultset.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from faultset.datasets.testing.exporter import check_exporter
    from faultset.datasets.testing.importer import check_importer

__all__ = ["check_exporter", "check_importer"]

__getattr__, __dir__ = lazy_names(__name__)
