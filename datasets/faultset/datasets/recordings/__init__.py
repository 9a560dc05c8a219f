"""Read recordings: hours of telemetry with many incidents."""
