"""The node of an embedded cluster: containers, their limits, logs and resource use."""
