"""A TiDB cluster: SQL layer, placement driver and stores, created by an operator from a custom resource."""
