"""Nezha's data: Online Boutique and Train Ticket, one file for each sampled minute, days of many short faults."""

from faultset.datasets.imports.nezha.format import NezhaImport

__all__ = ["NezhaImport"]
