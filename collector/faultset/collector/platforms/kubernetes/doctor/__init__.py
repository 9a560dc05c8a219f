"""What a cluster must have, can do, and has room for."""
