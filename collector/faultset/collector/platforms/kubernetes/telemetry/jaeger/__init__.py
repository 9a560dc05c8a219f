"""Spans from a Jaeger server."""
