"""Intervals and tests over episodes. What cannot be said is NaN with a reason, never zero."""
