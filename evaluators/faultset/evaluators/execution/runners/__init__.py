"""Runner processes: baselines run in them, watched and ended when they run away."""
