"""Trajectories in ATIF that other programs have written, and the answers in them."""
