"""Trajectories: what an agent did, step by step, in the Agent Trajectory Interchange Format (ATIF)."""
