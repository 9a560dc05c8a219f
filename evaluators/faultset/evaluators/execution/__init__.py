"""Running baselines over a dataset: in parallel, and in processes that are ended when they run away."""
