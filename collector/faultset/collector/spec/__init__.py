"""The specification language: an application as data, and the Kubernetes manifests made from it."""
