"""Localizers that read metrics alone."""
