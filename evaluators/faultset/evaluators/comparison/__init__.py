"""Comparison of two evaluations by method, on the episodes that both have."""
