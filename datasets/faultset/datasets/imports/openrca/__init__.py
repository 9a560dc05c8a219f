"""OpenRCA's data: Bank, Market and Telecom, days of telemetry with records of what failed."""

from faultset.datasets.imports.openrca.format import OpenRCAImport

__all__ = ["OpenRCAImport"]
