"""What a platform offers to faults and episodes: objects, capabilities, sources of telemetry, requirements."""
