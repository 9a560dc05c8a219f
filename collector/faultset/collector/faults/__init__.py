"""Faults: what each one breaks, what its label says, and how one sees that it took effect."""
