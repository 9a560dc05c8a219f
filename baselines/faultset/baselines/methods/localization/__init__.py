"""Root cause localizers."""
