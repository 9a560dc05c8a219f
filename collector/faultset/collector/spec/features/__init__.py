"""Parts of a service beyond its operations: consumers and tasks in the background, feature flags, probes, settings."""
