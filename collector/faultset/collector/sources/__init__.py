"""Sources of telemetry: the contract of added sources, and the conversion of samples and spans to tables."""
