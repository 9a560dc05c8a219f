"""The contract of baselines, their registry, and how they read an episode."""
