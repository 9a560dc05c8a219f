"""Published root cause localizers."""
