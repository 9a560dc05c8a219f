"""Application specs: an application as data, and its Kubernetes manifests."""
