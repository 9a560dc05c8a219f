"""Faults of Kubernetes objects: Services, Deployments, pods and volumes."""
