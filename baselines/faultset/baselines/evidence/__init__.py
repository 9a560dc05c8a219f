"""Evidence against services, from each kind of telemetry, in powers of ten of surprise."""
