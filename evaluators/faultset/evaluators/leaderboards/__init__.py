"""Tables computed from result rows, and from nothing else."""
