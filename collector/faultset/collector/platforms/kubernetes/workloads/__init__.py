"""An application's workloads on a cluster: manifests, images, readiness, and the load."""
