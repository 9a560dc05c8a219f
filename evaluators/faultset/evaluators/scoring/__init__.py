"""Metrics of answers against the truth, without side effects. Undefined values are NaN, never zero."""
