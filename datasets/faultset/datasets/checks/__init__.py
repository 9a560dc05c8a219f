"""Checks of a dataset: integrity, leaks of the answer, and what chance can predict."""
