"""Astronomy Shop: its spec, its steps, and its persona."""
