"""Agents as solvers of Inspect: published agents rewritten on one loop, and controls without a model."""
