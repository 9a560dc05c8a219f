"""Mitigation: what an operator does about a live fault, and whether the application is repaired by it."""
