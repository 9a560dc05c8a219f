"""Features of services beyond operations: background work, feature flags, probes, configuration, operators."""
