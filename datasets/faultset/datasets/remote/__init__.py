"""Datasets behind URLs that fsspec knows, such as object stores: read from there, and copied to there."""
