"""Patterns of the request rate, and regions of clients."""
