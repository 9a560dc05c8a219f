"""Methods that name the system level and the type of a fault."""
