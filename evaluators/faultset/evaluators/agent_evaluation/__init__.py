"""Agents in an evaluation: what they are asked, and their recorded runs as rows next to baselines."""
