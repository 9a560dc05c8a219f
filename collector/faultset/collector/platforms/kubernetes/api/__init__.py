"""Requests to a cluster: its API server, objects, namespaces and permissions."""
