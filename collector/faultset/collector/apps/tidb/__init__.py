"""A TiDB cluster: SQL front, placement driver and stores, made by an operator from a custom resource."""
