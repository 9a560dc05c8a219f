"""Stores whose own servers run, rather than Redis in their place."""
