"""Metrics from a Prometheus server."""
