"""Platforms that run applications: interfaces, the journal of changes, and the built-in platforms."""
