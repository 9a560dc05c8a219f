"""Read telemetry from a cluster's Prometheus and Jaeger."""
