"""Formats of recorded runs, one module or package each, and what a format has to offer."""
