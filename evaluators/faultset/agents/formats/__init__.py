"""Formats of recorded runs, one module or package each, and their contract."""
