"""Evidence against services from metrics and logs, as decimal logarithms."""
