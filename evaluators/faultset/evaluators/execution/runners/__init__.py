"""Runner processes: isolate baselines, enforce their limits, and stop them."""
