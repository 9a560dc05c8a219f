"""Sources of telemetry: the contract of those that a campaign adds, and how samples and spans become tables."""
