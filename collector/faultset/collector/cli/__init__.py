"""The commands of the collector."""
