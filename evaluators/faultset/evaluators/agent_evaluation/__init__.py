"""Agents in an evaluation: their questions, and their recorded runs as result rows."""
