"""A TiDB cluster: SQL front, placement driver and stores, created by an operator from a custom resource."""
