"""Series, roles and wide frames of metrics."""
