"""Importers of other benchmarks' data."""
