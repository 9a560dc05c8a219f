"""Controllers of the local platform: what the cluster's control plane and its kubelet decide, without any I/O."""
