"""Faults, their labels, and the checks that show that they took effect."""
