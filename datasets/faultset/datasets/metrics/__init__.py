"""Metric samples as series, roles, and wide frames on a regular grid."""
