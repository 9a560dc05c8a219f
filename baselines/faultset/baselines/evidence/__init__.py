"""Evidence against services from metrics and logs, in powers of ten."""
