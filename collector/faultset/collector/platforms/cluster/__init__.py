"""A cluster model without I/O: objects, controllers, and a kubelet that returns commands for a node."""
