"""Localizers that combine metrics, logs and traces."""
