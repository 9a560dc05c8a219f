"""Built-in import formats."""
