"""What a service emits: logs, metrics and spans."""
