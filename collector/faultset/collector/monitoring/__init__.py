"""Fetch past telemetry from running monitoring servers."""
