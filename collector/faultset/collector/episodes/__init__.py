"""One episode: its phases, its health checks, and the snapshot of its telemetry."""
