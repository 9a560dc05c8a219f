"""Which code an extension is, in which files it lies, and names that are imported on first use."""
