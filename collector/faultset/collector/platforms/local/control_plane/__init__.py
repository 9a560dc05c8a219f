"""What drives an embedded cluster: addresses, routing, and commands to the node."""
