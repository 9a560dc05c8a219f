"""Checks of a dataset: integrity, leaks of the answer, and predictability of faults from metadata."""
