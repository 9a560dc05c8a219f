"""Where applications run: the protocols of platforms, the journal of changes, and the built-in platforms."""
