"""Read past telemetry from running monitoring servers."""
