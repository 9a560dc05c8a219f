"""Two evaluations side by side: the same methods on the same episodes, what differs, and what else changed."""
