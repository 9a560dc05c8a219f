"""Intervals and tests over episodes. Unknown values are NaN with a reason, never zero."""
