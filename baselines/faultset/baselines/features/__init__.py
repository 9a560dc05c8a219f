"""Features of an episode that several methods use."""
