"""Impair pods with the Chaos Mesh of a cluster."""
