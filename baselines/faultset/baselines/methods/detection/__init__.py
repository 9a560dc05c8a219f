"""Published anomaly detectors."""
