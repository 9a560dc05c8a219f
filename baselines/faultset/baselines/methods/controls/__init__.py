"""Controls: methods that ignore the evidence, or look at one trivial sign of it."""
