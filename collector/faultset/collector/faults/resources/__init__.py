"""Faults of CPU and memory."""
