"""Verdicts: tests on client requests and on the target's telemetry."""
