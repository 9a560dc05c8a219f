"""Which code an extension is, and in which files it lies."""
