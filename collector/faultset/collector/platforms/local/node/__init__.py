"""The node process of the embedded platform: containers with limits, logs and resource usage."""
