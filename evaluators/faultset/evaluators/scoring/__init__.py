"""Metrics that compare answers with the truth, without side effects. Undefined values are NaN, never zero."""
