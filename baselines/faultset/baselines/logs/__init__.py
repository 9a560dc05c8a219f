"""Templates and anomaly scores of log lines."""
