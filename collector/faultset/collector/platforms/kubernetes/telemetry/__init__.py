"""TelemetryServers from a cluster's Prometheus and Jaeger, and how they are found."""
