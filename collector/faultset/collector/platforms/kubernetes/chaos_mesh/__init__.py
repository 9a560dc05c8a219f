"""Disturbances made by Chaos Mesh, on a cluster that has it."""
