"""Localizers that read traces, some of them with logs and metrics."""
