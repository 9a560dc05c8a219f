"""The command `evaluate`, and `faultset list baselines`."""
