"""Impairments by the cluster's Chaos Mesh."""
