"""Telemetry from a cluster's Prometheus and Jaeger."""
