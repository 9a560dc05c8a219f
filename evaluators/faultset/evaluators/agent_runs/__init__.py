"""Recorded runs of LLM agents as tables with intervals, and single runs as pages."""
