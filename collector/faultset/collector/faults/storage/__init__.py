"""Faults of stores that answer, but badly."""
