"""Evidence against services, from each kind of telemetry, on one decimal logarithmic scale."""
