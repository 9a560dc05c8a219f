"""Simple rules on telemetry."""
