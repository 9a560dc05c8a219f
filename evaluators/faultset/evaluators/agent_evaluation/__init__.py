"""Agents in an evaluation: what they are asked, runs on dask workers, and their answers as rows beside baselines."""
