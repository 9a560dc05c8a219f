"""Telemetry from a cluster's Prometheus and Jaeger, and how their servers are found."""
