"""Records past telemetry from running monitoring servers."""
