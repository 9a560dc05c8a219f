"""The platform that runs applications on a Kubernetes cluster."""
