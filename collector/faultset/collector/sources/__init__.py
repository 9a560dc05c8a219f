"""Telemetry rows: how samples and spans of any source become tables."""
