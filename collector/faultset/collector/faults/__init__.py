"""Faults, their labels, and the checks that confirm their effect."""
