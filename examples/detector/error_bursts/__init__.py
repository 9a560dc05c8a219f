"""A detector that learns from healthy episodes."""
