"""Platforms that run applications: their interface, the journal of changes, and the built-in platforms."""
