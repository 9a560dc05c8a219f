"""The journal of changes, and how they are undone."""
