"""Consistency checks of specs across fields."""
