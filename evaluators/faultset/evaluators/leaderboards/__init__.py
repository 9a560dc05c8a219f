"""Leaderboards computed from result rows."""
