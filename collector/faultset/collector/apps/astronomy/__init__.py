"""Astronomy Shop: its spec, the steps that no other application needs, and its persona."""
