"""Checks of an episode's files before anything uses them: sizes, hashes, schemas, values."""
