"""Features that several methods compute from an episode."""
